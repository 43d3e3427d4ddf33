"""Sampling: the right distribution, from the seed and the sentence alone."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
import torch

from clearhead.control_tokens import BOS, CONTROL_COUNT, EOS
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.search import search


def ids_of(found):
    return [[one.ids for one in outputs] for outputs in found]


def test_the_same_seed_gives_the_same_and_another_seed_something_else(translator, lines):
    first = translator.hypotheses(lines, sample=True, n_best=3, seed=5)
    assert first == translator.hypotheses(lines, sample=True, n_best=3, seed=5)
    assert first != translator.hypotheses(lines, sample=True, n_best=3, seed=6)
    for found in first:
        assert len(found) == 3
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    different = [found for found in first if len({tuple(one.ids) for one in found}) > 1]
    assert len(different) > 40  # the draws of a sentence are not one draw


# case G1
def test_the_draws_of_a_sentence_do_not_depend_on_its_neighbours(translator, lines):
    together = translator.hypotheses(lines, sample=True, n_best=2, top_p=0.9)
    in_sevens = translator.hypotheses(lines[::-1], sample=True, n_best=2, top_p=0.9, batch_size=7)[::-1]
    assert ids_of(together) == ids_of(in_sevens)
    alone = translator.hypotheses(lines[:20], sample=True, n_best=2, top_p=0.9, batch_size=1)
    assert ids_of(together[:20]) == ids_of(alone)


def test_drawing_from_the_likeliest_token_only_is_greedy_search(translator, lines):
    greedy = translator.hypotheses(lines, beam_size=1)
    drawn = translator.hypotheses(lines, sample=True, top_k=1, temperature=7.0)
    assert ids_of(drawn) == ids_of(greedy)
    for [one], [other] in zip(drawn, greedy, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
    assert ids_of(translator.hypotheses(lines, sample=True, top_p=1e-6)) == ids_of(greedy)


def sequence_probabilities(model, source, *, limit, temperature):
    """The probability of drawing each output of up to `limit` tokens, control tokens being left out of the draw."""

    def following(ids):
        logits = model(torch.tensor([source]), torch.tensor([[BOS, *ids]]))[0, -1].double() / temperature
        logits[[0, 1, 3]] = -math.inf
        return logits.softmax(-1).tolist()

    probabilities = {}
    for length in range(limit + 1):
        for ids in itertools.product(range(CONTROL_COUNT, model.config.target_vocab), repeat=length):
            drawn = math.prod(following(ids[:place])[id] for place, id in enumerate(ids))
            probabilities[ids] = drawn * (1.0 if length == limit else following(ids)[EOS])
    return probabilities


def distance(counts, probabilities):
    """Pearson's chi-square divided by its degrees of freedom: near 1 when the counts come from the probabilities."""
    total = sum(counts.values())
    expected = {one: total * probability for one, probability in probabilities.items() if total * probability >= 5}
    observed = {one: counts[one] for one in expected}
    rest, rest_expected = total - sum(observed.values()), total - sum(expected.values())
    square = sum((observed[one] - count) ** 2 / count for one, count in expected.items())
    square += (rest - rest_expected) ** 2 / max(rest_expected, 1.0)
    return square / len(expected)


@pytest.mark.parametrize("temperature", [1.0, 1.8])
def test_whole_outputs_come_as_often_as_they_are_likely(random_model, random_sources, temperature):
    """Over many seeds, and many draws a seed: first tokens, second tokens given the first, and the ends."""
    model, [source] = random_model(2, tokens=3, sharpness=0.5), random_sources(2, [3], tokens=3)
    probabilities = sequence_probabilities(model, source, limit=2, temperature=temperature)
    assert sum(probabilities.values()) == pytest.approx(1.0)
    counts = Counter()
    for seed in range(25):
        options = {"temperature": temperature, "seed": seed, "max_length_ratio": 0.0, "max_length_extra": 2}
        found = search(model, [source], DecodingOptions(sample=True, n_best=200, **options))[0]
        counts.update(tuple(one.ids) for one in found)
    assert len([one for one in probabilities.values() if one > 0.01]) > 5  # not decided by one token alone
    assert distance(counts, probabilities) < 2.5
    other = sequence_probabilities(model, source, limit=2, temperature=temperature + 0.3)
    assert distance(counts, other) > 2.5  # the bound would tell a temperature from another


def test_the_first_draws_of_many_seeds_follow_the_nucleus(random_model, random_sources):
    model, [source] = random_model(4, tokens=8, sharpness=0.6), random_sources(4, [3], tokens=8)
    logits = model(torch.tensor([source]), torch.tensor([[BOS]]))[0, -1].double()
    logits[[0, 1, 3]] = -math.inf
    probabilities, order = logits.softmax(-1).sort(descending=True)
    kept = int((probabilities.cumsum(0) - probabilities < 0.8).sum())
    assert 3 <= kept <= 7
    nucleus = {
        (id,) if id != EOS else (): probabilities[place].item() for place, id in enumerate(order[:kept].tolist())
    }
    mass = sum(nucleus.values())
    counts = Counter()
    limit = {"max_length_ratio": 0.0, "max_length_extra": 1}
    for seed in range(120):
        found = search(model, [source], DecodingOptions(sample=True, n_best=1, top_p=0.8, seed=seed, **limit))[0]
        counts.update(tuple(one.ids) for one in found)
    assert set(counts) <= set(nucleus)
    assert distance(counts, {one: probability / mass for one, probability in nucleus.items()}) < 2.5


def test_every_output_begins_with_its_prefix(translator, lines):
    prefixes = [line[:2].upper() for line in lines]
    for prefix, found in zip(
        prefixes, translator.hypotheses(lines, prefixes=prefixes, sample=True, n_best=2), strict=True
    ):
        assert all(one.text.startswith(prefix) for one in found)
