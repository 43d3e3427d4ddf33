"""Greedy and beam search give the ids that `generate` of transformers gives."""

import pytest
import torch

from clearhead.decoding.generation import generate
from clearhead.decoding.generation_options import GenerationOptions
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.search import search
from clearhead.interchange.hugging_face import read_folder
from clearhead.models.making import make_model_of
from clearhead.text.marian import vocabulary_order

NAMES = ["gpt2", "llama default", "llama llama3"]


def prompts_of(lengths):
    random = torch.Generator().manual_seed(0)
    return [torch.randint(3, 37, (length,), generator=random).tolist() for length in lengths]


# case G13
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (1, 1.3), (4, 1.0)])
def test_text_models(folder_of, name, beams, penalty):
    path, theirs = folder_of(name)
    read = read_folder(path)
    ours = make_model_of(read.config, read.weights, origin=name).eval()
    prompts = prompts_of([1, 4, 9, 9, 2])
    options = GenerationOptions(beam_size=beams, max_new_tokens=20, repetition_penalty=penalty)
    found = generate(ours, prompts, options, end=[2])
    for prompt, one in zip(prompts, found, strict=True):
        expected = theirs.generate(
            torch.tensor([prompt]), num_beams=beams, do_sample=False, max_new_tokens=20, eos_token_id=2,
            pad_token_id=0, length_penalty=0.0, repetition_penalty=penalty,
        )[0, len(prompt) :].tolist()  # fmt: skip
        assert one.ids == [id for id in expected if id != 2]
        assert one.ended == (2 in expected)


# case E2
@pytest.mark.parametrize("beams", [1, 4])
def test_marian(folder_of, beams):
    path, theirs = folder_of("marian")
    read = read_folder(path)
    ours = make_model_of(read.config, read.weights, origin="marian").eval()
    order = vocabulary_order(read.control, 37)
    sources = [[*(id + 3 for id in prompt if id < 33), 2] for prompt in prompts_of([9, 12, 4, 15])]
    options = DecodingOptions(beam_size=beams, length_penalty=0.0, max_length_ratio=0, max_length_extra=15)
    for source, found in zip(sources, search(ours, sources, options), strict=True):
        ids = torch.tensor([[order[id] for id in source]])
        # Padding is never generated, as their own configurations say; nor is, with us, the unknown token.
        expected = theirs.generate(
            ids, num_beams=beams, do_sample=False, max_length=17, length_penalty=0.0, bad_words_ids=[[36], [1]],
            pad_token_id=36,
        )[0].tolist()  # fmt: skip
        assert [order[id] for id in found[0].ids] == [id for id in expected if id not in (0, 36)]
