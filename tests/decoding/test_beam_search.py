"""Beam search against a search through everything, against its rule in plain Python, and against greedy search."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from clearhead.control_tokens import BOS, CONTROL_COUNT, EOS
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.search import search

TOLERANCE = 1e-4


class Output(NamedTuple):
    """What the oracles below say of an output: token ids without the end token."""

    ids: tuple[int, ...]
    log_probability: float
    score: float
    cut: bool = False


def penalised(log_probability: float, length: int, alpha: float) -> float:
    """Wu et al. (2016), equation 14, without the coverage term; `length` counts the end token."""
    return log_probability / math.pow(5 + length, alpha) * math.pow(6, alpha)


def next_log_probabilities(model, source, outputs):
    """`(n, v)` in float64, of what follows each of n outputs of one length: a full forward pass, no cache."""
    decoder_input = torch.tensor([[BOS, *ids] for ids in outputs])
    logits = model(torch.tensor([source]).expand(len(outputs), -1), decoder_input)
    return logits[:, -1].double().log_softmax(-1)


def forced_log_probabilities(model, source, outputs):
    """Of the tokens and the end token of each of n outputs of one length, by teacher forcing."""
    decoder_input = torch.tensor([[BOS, *ids] for ids in outputs])
    labels = torch.tensor([[*ids, EOS] for ids in outputs])
    logits = model(torch.tensor([source]).expand(len(outputs), -1), decoder_input)
    return logits.double().log_softmax(-1).gather(2, labels[:, :, None]).sum((1, 2)).tolist()


def every_output(model, source, *, limit, alpha, prefix=()):
    """All outputs of up to `limit` tokens that begin with the prefix, the best first."""
    ordinary = range(CONTROL_COUNT, model.config.target_vocab)
    outputs = []
    for length in range(len(prefix), limit + 1):
        all_ids = [(*prefix, *rest) for rest in itertools.product(ordinary, repeat=length - len(prefix))]
        for ids, total in zip(all_ids, forced_log_probabilities(model, source, all_ids), strict=True):
            outputs.append(Output(ids, total, penalised(total, length + 1, alpha)))
    return sorted(outputs, key=lambda output: -output.score)


class Tie(Exception):
    """Two continuations too near to each other: rounding decides which of them the search keeps."""


def beam_search_in_words(model, source, *, beams, limit, alpha):
    """The rule, literally: keep the best `beams` of all continuations; what takes the end token keeps its place.

    No cache, no batch, no stopping early: it goes on until every place is taken by a finished output.
    """
    running, finished = [((), 0.0)], []
    for length in range(limit + 1):
        following = next_log_probabilities(model, source, [ids for ids, _ in running])
        continuations = []
        for (ids, total), row in zip(running, following, strict=True):
            likeliest = max([EOS, *range(CONTROL_COUNT, len(row))], key=lambda token: row[token].item())
            for token in [EOS] if length == limit else [EOS, *range(CONTROL_COUNT, len(row))]:
                cut = length == limit and likeliest != EOS
                continuations.append((total + row[token].item(), ids, token, cut))
        continuations.sort(key=lambda continuation: -continuation[0])
        places = beams - len(finished)
        if len(continuations) > places and continuations[places - 1][0] - continuations[places][0] < 1e-5:
            raise Tie
        running = []
        for total, ids, token, cut in continuations[:places]:
            if token == EOS:
                finished.append(Output(ids, total, penalised(total, length + 1, alpha), cut))
            else:
                running.append(((*ids, token), total))
        if not running:
            break
    return sorted(finished, key=lambda output: -output.score)


def assert_same(found, expected):
    """The same outputs in the same order, with the same scores; where scores are equal the order may differ."""
    assert len(found) == len(expected)
    by_ids = {output.ids: output for output in expected}
    assert len(by_ids) == len(expected)
    assert {tuple(one.ids) for one in found} == set(by_ids)
    for one, at_its_place in zip(found, expected, strict=True):
        assert one.score == pytest.approx(by_ids[tuple(one.ids)].score, abs=TOLERANCE)
        assert one.score == pytest.approx(at_its_place.score, abs=TOLERANCE)
        assert one.log_probability == pytest.approx(by_ids[tuple(one.ids)].log_probability, abs=TOLERANCE)


# section 6 of the architecture: beam search equals exhaustive search on a tiny vocabulary
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_that_holds_everything_finds_everything(random_model, random_sources, seed, alpha):
    model = random_model(seed, tokens=3)
    options = {"length_penalty": alpha, "max_length_ratio": 0.0, "max_length_extra": 3}
    for source in random_sources(seed, [1, 4], tokens=3):
        expected = every_output(model, source, limit=3, alpha=alpha)
        assert len(expected) == 40  # 1 + 3 + 9 + 27
        all_of_them = search(model, [source], DecodingOptions(beam_size=40, n_best=40, **options))[0]
        assert_same(all_of_them, expected)
        best = search(model, [source], DecodingOptions(beam_size=45, n_best=7, **options))[0]
        assert_same(best, expected[:7])


# cases G13, G4
@pytest.mark.parametrize("prefix", [(4,), (6, 5), (5, 5, 4)])
def test_everything_that_begins_with_a_prefix_is_found(random_model, random_sources, prefix):
    model, source = random_model(8, tokens=3), random_sources(8, [5], tokens=3)[0]
    options = DecodingOptions(beam_size=40, n_best=40, length_penalty=0.6, max_length_ratio=0.0, max_length_extra=3)
    found = search(model, [source], options, [prefix])[0]
    assert_same(found, every_output(model, source, limit=3, alpha=0.6, prefix=prefix))


@pytest.mark.parametrize(("beams", "alpha"), [(1, 0.6), (2, 0.0), (2, 1.0), (3, 0.6), (5, 0.0), (5, 1.0)])
def test_the_rule_in_words(random_model, random_sources, beams, alpha):
    """Whatever is finished early, and however few are asked for, the outputs are those of the rule."""
    compared = 0
    for seed in range(5):
        model = random_model(seed)
        sources = random_sources(seed, [1, 2, 4])
        limit = {"max_length_ratio": 1.0, "max_length_extra": 2}
        options = DecodingOptions(beam_size=beams, n_best=beams, length_penalty=alpha, **limit)
        one_best = DecodingOptions(beam_size=beams, n_best=1, length_penalty=alpha, **limit)
        found, best = search(model, sources, options), search(model, sources, one_best)
        for place, source in enumerate(sources):
            try:
                expected = beam_search_in_words(model, source, beams=beams, limit=len(source) + 1, alpha=alpha)
            except Tie:
                continue
            assert_same(found[place], expected)
            assert_same(best[place], expected[:1])
            compared += 1
    assert compared > 12


@pytest.mark.parametrize("beams", [1, 3, 5])
def test_the_rule_in_words_for_a_model_that_knows_something(half_trained, letters, lines, beams):
    sources = [[*letters[0].encode(line), EOS] for line in lines[:10]]
    options = {"length_penalty": 0.6, "max_length_ratio": 1.0, "max_length_extra": 1}
    found = search(half_trained, sources, DecodingOptions(beam_size=beams, n_best=beams, **options))
    for source, outputs in zip(sources, found, strict=True):
        expected = beam_search_in_words(half_trained, source, beams=beams, limit=len(source), alpha=0.6)
        assert_same(outputs, expected)
        cut = {output.ids: output.cut for output in expected}
        assert [one.hit_length_limit for one in outputs] == [cut[tuple(one.ids)] for one in outputs]


# case G5
def test_the_best_does_not_depend_on_how_many_are_asked_for(translator, lines):
    five = translator.hypotheses(lines, n_best=5, beam_size=5)
    for n_best in (1, 2, 4):
        fewer = translator.hypotheses(lines, n_best=n_best, beam_size=5)
        assert [[one.ids for one in found] for found in fewer] == [
            [one.ids for one in found[:n_best]] for found in five
        ]
    for found in five:
        assert len(found) == 5
        assert len({tuple(one.ids) for one in found}) == 5
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


# case G5
def test_a_beam_that_holds_everything_finds_no_less_than_a_narrow_one(random_model, random_sources):
    model = random_model(3, tokens=3)
    for source in random_sources(3, [2, 3, 5], tokens=3):
        limit = {"max_length_ratio": 0.0, "max_length_extra": 3}
        widest = search(model, [source], DecodingOptions(beam_size=40, **limit))[0][0].score
        for beams in range(1, 11):
            assert search(model, [source], DecodingOptions(beam_size=beams, **limit))[0][0].score <= widest + TOLERANCE


# cases G6, G13: without a cache, one sentence at a time
def test_a_beam_of_one_is_greedy_search(half_trained, letters, lines):
    """A loop of whole forward passes, that takes the likeliest token each time."""
    sources = [[*letters[0].encode(line), EOS] for line in lines]
    outputs = search(half_trained, sources, DecodingOptions(beam_size=1, max_length_ratio=2.0, max_length_extra=4))
    source = pad_sequence([torch.tensor(ids) for ids in sources], batch_first=True)
    written, totals, ended = torch.full((len(lines), 1), BOS), torch.zeros(len(lines)).double(), torch.zeros(50).bool()
    limits = torch.tensor([2 * len(line) + 4 for line in lines])
    for length in range(int(limits.max()) + 1):
        following = half_trained(source, written)[:, -1].double().log_softmax(-1)
        allowed = following.clone()
        allowed[:, [0, 1, 3]] = -math.inf
        token = torch.where(length == limits, EOS, allowed.argmax(-1))
        totals += torch.where(ended, 0.0, following.gather(1, token[:, None])[:, 0])
        ended |= token == EOS
        written = torch.cat([written, torch.where(ended, EOS, token)[:, None]], 1)
    for row, [found] in enumerate(outputs):
        ids = [id for id in written[row, 1:].tolist() if id != EOS]
        assert found.ids == ids
        assert found.log_probability == pytest.approx(totals[row].item(), abs=TOLERANCE)
        assert found.score == pytest.approx(penalised(totals[row].item(), len(ids) + 1, 0.6), abs=TOLERANCE)


def test_no_control_token_is_ever_generated(random_model, random_sources):
    """Not even by a model that finds nothing likelier than padding, another start, and an unknown symbol."""
    model = random_model(5)
    with torch.no_grad():
        model.projection.weight[[0, 1, 3]] = 6 * model.projection.weight[[4, 5, 6]]
    sources = random_sources(5, [1, 4, 7])
    likeliest = model(torch.tensor([sources[0]]), torch.tensor([[BOS, 4, 5, 6, 7]])).argmax(-1)
    assert set(likeliest.flatten().tolist()) & {0, 1, 3}
    limit = {"max_length_ratio": 1.0, "max_length_extra": 3}
    for options in (
        DecodingOptions(beam_size=1, **limit),
        DecodingOptions(beam_size=4, n_best=4, **limit),
        DecodingOptions(sample=True, n_best=20, temperature=3.0, **limit),
    ):
        for found in search(model, sources, options):
            for one in found:
                assert all(id >= CONTROL_COUNT for id in one.ids)
        # They keep their share of the probability, so the score is still that of the model.
        first = search(model, sources[:1], options)[0][0]
        [expected] = forced_log_probabilities(model, sources[0], [first.ids])
        assert first.log_probability == pytest.approx(expected, rel=1e-5, abs=TOLERANCE)


# case G4
@pytest.mark.parametrize("changes", [{"beam_size": 1}, {"beam_size": 5, "n_best": 5}, {"sample": True, "n_best": 3}])
def test_every_score_is_that_of_teacher_forcing(translator, lines, changes):
    found = translator.hypotheses(lines, length_penalty=1.0, **changes)
    pairs = [(line, one) for line, outputs in zip(lines, found, strict=True) for one in outputs]
    scored = translator.score([line for line, _ in pairs], [one.text for _, one in pairs])
    for (_, one), score in zip(pairs, scored, strict=True):
        assert one.log_probability == pytest.approx(score.log_probability, abs=TOLERANCE)
        assert score.tokens == len(one.ids) + 1
        assert one.score == pytest.approx(penalised(score.log_probability, score.tokens, 1.0), abs=TOLERANCE)
