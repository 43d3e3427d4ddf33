"""One step of decoding, against the definitions in plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.decoding.choice import best_candidates, choose_at_random, choose_best
from clearhead.parts.cache import Rows

SENTENCES, VOCABULARY = 3, 7


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 9), data=st.data())
def test_the_best_of_all_continuations_are_chosen(seed, k, data):
    """With some hypotheses ended, some tokens forbidden, and wide beams that the vocabulary can't fill."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(SENTENCES, k, VOCABULARY, generator=generator)
    so_far = -4 * torch.rand(SENTENCES, k, generator=generator)
    ended = data.draw(st.lists(st.integers(0, k - 1), max_size=k - 1, unique=True))
    so_far[:, ended] = -math.inf
    normalizer = logits.logsumexp(-1)
    logits[:, :, [0, 3]] = -math.inf
    slots = torch.tensor([k, k - len(ended), max(1, k - len(ended) - 1)])
    rows = Rows(so_far.isfinite())
    candidates = best_candidates(rows.gather(logits), rows.gather(normalizer), k)
    choice = choose_best(so_far, candidates, rows, slots)
    for row in range(SENTENCES):
        continuations = [
            (so_far[row, place].item() + logits[row, place, token].item() - normalizer[row, place].item(), place, token)
            for place in range(k)
            for token in range(VOCABULARY)
        ]
        expected = sorted((one for one in continuations if one[0] > -math.inf), reverse=True)[: slots[row]]
        chosen = [
            (total, origin, token)
            for total, origin, token in zip(*(part[row].tolist() for part in choice), strict=True)
            if total > -math.inf
        ]
        assert [one[1:] for one in chosen] == [one[1:] for one in expected]
        assert [one[0] for one in chosen] == pytest.approx([one[0] for one in expected], abs=1e-5)


def wanted_distribution(logits, temperature, top_k, top_p):
    """What to draw from, in float64: softmax with temperature, the k likeliest, the fewest that reach p."""
    probabilities = (logits.double() / temperature).softmax(-1)
    order = sorted(range(len(logits)), key=lambda token: -probabilities[token].item())
    kept = order[:top_k] if top_k else order
    nucleus, mass = [], 0.0
    for token in kept:
        if mass >= top_p * sum(probabilities[other].item() for other in kept):
            break
        nucleus.append(token)
        mass += probabilities[token].item()
    wanted = torch.zeros_like(probabilities)
    wanted[nucleus] = probabilities[nucleus]
    return wanted / wanted.sum()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (3, 1.0), (1, 1.0), (100, 1.0), (0, 0.7), (0, 1e-6), (4, 0.8)])
def test_an_even_spread_of_random_numbers_gives_the_distribution(temperature, top_k, top_p):
    """The draw inverts the distribution, so numbers evenly spread over 0 to 1 give each token its share exactly."""
    count = 10_000
    logits = 1.5 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(1))
    logits[2] = -math.inf
    uniform = (torch.arange(count) + 0.5) / count
    choice = choose_at_random(
        torch.zeros(1, count),
        logits.expand(count, -1).clone(),
        torch.full((count,), 3.0),
        Rows(torch.ones(1, count, dtype=torch.bool)),
        uniform[None],
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
    )
    shares = torch.bincount(choice.tokens[0], minlength=VOCABULARY).double() / count
    torch.testing.assert_close(
        shares, wanted_distribution(logits, temperature, top_k, top_p), rtol=0, atol=2 * VOCABULARY / count
    )
    assert torch.equal(choice.origins[0], torch.arange(count))
    # The log-probability is the model's own, whatever the temperature.
    torch.testing.assert_close(choice.log_probabilities[0], logits[choice.tokens[0]] - 3.0)


@pytest.mark.parametrize("number", [0.0, 1 - 2**-24])
def test_the_extremes_draw_tokens_that_may_be_drawn(number):
    logits = torch.tensor([[-math.inf, 0.0, 1.0, -math.inf, -90.0, -math.inf]])
    one = Rows(torch.ones(1, 1, dtype=torch.bool))
    options = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    choice = choose_at_random(torch.zeros(1, 1), logits, torch.zeros(1), one, torch.tensor([[number]]), **options)
    assert choice.tokens.item() in {1, 2, 4}


def test_only_open_hypotheses_draw():
    """Each with its own numbers; a closed one stays closed."""
    logits, uniform = torch.randn(4, VOCABULARY), torch.rand(2, 3)
    is_open = torch.tensor([[True, False, True], [False, True, True]])
    so_far = torch.zeros(2, 3).masked_fill(~is_open, -math.inf)
    options = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    some = choose_at_random(so_far, logits, torch.zeros(4), Rows(is_open), uniform, **options)
    everyone = Rows(torch.ones(4, 1, dtype=torch.bool))
    apart = choose_at_random(torch.zeros(4, 1), logits, torch.zeros(4), everyone, uniform[is_open][:, None], **options)
    assert torch.equal(some.tokens[is_open], apart.tokens[:, 0])
    assert torch.equal(some.log_probabilities[is_open], apart.log_probabilities[:, 0])
    assert (some.log_probabilities[~is_open] == -math.inf).all()
