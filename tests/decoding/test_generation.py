"""Going on with prompts: the same whatever the batch, and against plain loops and an exhaustive search."""

import functools
import itertools
import math

import pytest
import torch

from clearhead.decoding.generation import generate
from clearhead.decoding.generation_options import GenerationOptions
from clearhead.errors import ConfigError
from clearhead.models.gpt import GPT, gpt2_config
from clearhead.models.llama import llama_config

VOCABULARY, END = 11, 2
ENDS = [2, 5, 7]


@pytest.fixture(scope="module", params=["gpt", "llama"])
def model(request):
    torch.manual_seed(0)
    shape = {"vocabulary": VOCABULARY, "decoder_layers": 2, "d_model": 12, "d_ff": 17, "max_positions": 60}
    make = gpt2_config if request.param == "gpt" else llama_config
    fields = {"n_heads": 3} if request.param == "gpt" else {"n_heads": 6, "kv_heads": 3}
    model = GPT(make(**shape, **fields))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.5)
            if name.endswith("gamma"):
                parameter += 1
    return model.eval()


def prompts_of(lengths, seed=0):
    random = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCABULARY, (length,), generator=random).tolist() for length in lengths]


@torch.no_grad()
def next_log_probabilities(model, ids):
    """Without a cache."""
    return model(torch.tensor([ids]))[0, -1].double().log_softmax(-1)


def greedy_by_hand(model, prompt, limit):
    ids, total = list(prompt), 0.0
    for _ in range(limit):
        scores = next_log_probabilities(model, ids)
        total += float(scores.max())
        ids.append(int(scores.argmax()))
        if ids[-1] in ENDS:
            return ids[len(prompt) : -1], total, True
    return ids[len(prompt) :], total, False


# case G13
def test_greedy_is_the_plain_loop(model):
    prompts = prompts_of([1, 4, 9, 2, 9, 1, 6])
    found = generate(model, prompts, GenerationOptions(max_new_tokens=12), end=ENDS)
    assert {one.ended for one in found} == {True, False}
    for prompt, one in zip(prompts, found, strict=True):
        ids, total, ended = greedy_by_hand(model, prompt, 12)
        assert (one.ids, one.ended) == (ids, ended)
        assert one.log_probability == pytest.approx(total, abs=1e-4)


# cases G1, G13
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 3},
        {"beam_size": 4, "length_penalty": 1.0},
        {"sample": True, "temperature": 1.3},
        {"sample": True, "top_k": 4, "top_p": 0.8, "seed": 3},
        {"repetition_penalty": 1.4},
        {"beam_size": 2, "repetition_penalty": 1.2},
    ],
)
def test_neighbours_have_no_say(model, options):
    prompts = prompts_of([3, 1, 8, 5, 5, 2, 11, 4])
    options = GenerationOptions(max_new_tokens=15, **options)
    together = generate(model, prompts, options, end=[END])
    for prompt, one in zip(prompts, together, strict=True):
        alone = generate(model, [prompt], options, end=[END])[0]
        assert alone.ids == one.ids
        assert alone.log_probability == pytest.approx(one.log_probability, abs=1e-4)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_wide_beam_finds_the_best_of_all(model, penalty):
    prompt, limit = prompts_of([3])[0], 3
    options = GenerationOptions(beam_size=VOCABULARY**2, max_new_tokens=limit, length_penalty=penalty)
    found = generate(model, [prompt], options, end=[END])[0]
    best = (-math.inf, [])
    seen = functools.cache(lambda added: next_log_probabilities(model, [*prompt, *added]).tolist())
    letters = [id for id in range(VOCABULARY) if id != END]
    for length in range(limit + 1):
        for added in itertools.product(letters, repeat=length):
            whole = [*added, END] if length < limit else list(added)
            total = sum(seen(tuple(whole[:place]))[id] for place, id in enumerate(whole))
            best = max(best, (total / len(whole) ** penalty, list(added)))
    assert found.ids == best[1]
    assert found.score == pytest.approx(best[0], abs=1e-4)


def test_draws_follow_the_distribution(model):
    """Each of many prompts' first draws, by a seed of its own, beside the model's probabilities."""
    prompt = prompts_of([4])[0]
    options = [GenerationOptions(sample=True, max_new_tokens=1, seed=seed) for seed in range(200)]
    drawn = [generate(model, [prompt], one, end=[])[0].ids[0] for one in options]
    shares = torch.bincount(torch.tensor(drawn), minlength=VOCABULARY) / len(drawn)
    expected = next_log_probabilities(model, prompt).exp()
    assert float((shares - expected).abs().max()) < 4 * 0.5 / len(drawn) ** 0.5
    again = generate(model, [prompt], options[7], end=[])[0]
    assert again.ids[0] == drawn[7]


def test_a_penalty_makes_repeating_rare(model):
    prompts = prompts_of([5] * 6)

    def repeats(penalty):
        found = generate(model, prompts, GenerationOptions(max_new_tokens=8, repetition_penalty=penalty))
        return sum(len(one.ids) - len({*one.ids} - {*prompt}) for prompt, one in zip(prompts, found, strict=True))

    assert repeats(50.0) < repeats(1.0)


# case S3
def test_a_text_ends_where_the_positions_do():
    model = GPT(gpt2_config(vocabulary=7, decoder_layers=1, d_model=4, d_ff=5, n_heads=2, max_positions=6)).eval()
    for prompt, room in (([3], 6), ([3, 4, 5, 6], 3), ([3] * 6, 1)):
        found = generate(model, [prompt], GenerationOptions(max_new_tokens=50))[0]
        assert (len(found.ids), found.ended) == (room, False)


def test_a_text_can_be_ended_from_outside(model):
    prompts = prompts_of([3, 6])
    found = generate(model, prompts, GenerationOptions(max_new_tokens=20), is_finished=lambda _, ids: len(ids) == 5)
    assert [(len(one.ids), one.ended) for one in found] == [(5, True), (5, True)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens = 0: has to be a whole number of at least 1"),
        ({"temperature": 0}, "temperature = 0"),
        ({"top_p": 1.5}, "top_p = 1.5"),
        ({"beam_size": 2, "sample": True}, "give one of them"),
        ({"stop": "x"}, "stop = 'x'"),
        ({"stop": ("",)}, "stop = "),
    ],
)
def test_options_that_make_no_sense(options, words):
    with pytest.raises(ConfigError, match=words):
        GenerationOptions(**options)
