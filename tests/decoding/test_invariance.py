"""The same answer whatever the batch: neighbours, order, padding, threads, cache and prefixes of others have no say."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.search import search
from clearhead.decoding.translator import Translator

TOLERANCE = 1e-4


def assert_same(found, expected):
    """The same texts, scores and flags, line by line."""
    assert [[one.text for one in outputs] for outputs in found] == [
        [one.text for one in outputs] for outputs in expected
    ]
    for outputs, others in zip(found, expected, strict=True):
        for one, other in zip(outputs, others, strict=True):
            assert one.score == pytest.approx(other.score, abs=TOLERANCE)
            assert one.log_probability == pytest.approx(other.log_probability, abs=TOLERANCE)
            assert (one.ids, one.tokens) == (other.ids, other.tokens)
            assert one.hit_length_limit == other.hit_length_limit


@pytest.fixture(scope="module")
def one_by_one(half_trained, letters, lines):
    """Each line translated in a call of its own, by beam size."""
    translator = Translator(half_trained, *letters, DecodingOptions(max_length_ratio=1.2, max_length_extra=1))
    return {
        beams: [translator.hypotheses([line], beam_size=beams, n_best=min(2, beams))[0] for line in lines]
        for beams in (1, 5)
    }


def test_the_lines_are_worth_comparing(one_by_one):
    """Outputs of many lengths, some cut and some not: no two alike and none decided before the model is asked."""
    for found in one_by_one.values():
        best = [outputs[0] for outputs in found]
        assert len({one.text for one in best}) > 40
        assert len({len(one.ids) for one in best}) > 8
        assert {one.hit_length_limit for one in best} == {False, True}


# case G1
@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("batch_size", [2, 7, 50])
def test_batches_of_any_size_in_any_order(translator, lines, one_by_one, batch_size, beams):
    order = random.Random(batch_size).sample(range(50), 50)
    shuffled = translator.hypotheses(
        [lines[i] for i in order], batch_size=batch_size, beam_size=beams, n_best=min(2, beams)
    )
    assert_same(shuffled, [one_by_one[beams][i] for i in order])


# case G1: without a length penalty too
def test_the_length_penalty_is_each_sentences_own(translator, lines):
    together = translator.hypotheses(lines[:12], length_penalty=0.0, beam_size=3)
    assert_same(together, [translator.hypotheses([line], length_penalty=0.0, beam_size=3)[0] for line in lines[:12]])


# case G1: more sentences than places, so that some come into the places of others while these go on
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 9), min_size=3, max_size=14),
    beams=st.integers(1, 4),
    places=st.integers(1, 4),
    seed=st.integers(0, 50),
)
def test_places_are_taken_over_cleanly(random_model, random_sources, lengths, beams, places, seed):
    model = random_model(seed, decoder_layers=2, sharpness=1.0)
    sources = random_sources(seed, lengths)  # in no order: a newcomer may be longer than all before it
    options = DecodingOptions(beam_size=beams, n_best=beams, batch_size=places * beams, max_length_extra=3)
    together = search(model, sources, options)
    for source, found in zip(sources, together, strict=True):
        alone = search(model, [source], options)[0]
        assert [one.ids for one in found] == [one.ids for one in alone]
        assert [one.score for one in found] == pytest.approx([one.score for one in alone], abs=TOLERANCE)


# cases G1, G2
@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text("abcdefgh", min_size=1, max_size=9), min_size=1, max_size=5),
    beams=st.integers(1, 4),
    batch_size=st.integers(1, 6),
)
def test_any_lines_in_any_company(translator, texts, beams, batch_size):
    options = {"beam_size": beams, "max_length_extra": 2}
    together = translator.hypotheses(texts, batch_size=batch_size, **options)
    assert_same(together, [translator.hypotheses([text], **options)[0] for text in texts])


# case G1: padding
def test_padding_a_source_changes_nothing(half_trained, letters, lines):
    """A short sentence beside ever longer ones, in one batch of the search itself."""
    short = [*letters[0].encode("bad"), 2]
    options = DecodingOptions(beam_size=4, n_best=4, max_length_ratio=2.0, max_length_extra=2)
    alone = search(half_trained, [short], options)[0]
    for length in (4, 11, 40):
        neighbour = [*letters[0].encode("h" * length), 2]
        beside = search(half_trained, [neighbour, short, short], options)
        for found in beside[1:]:
            assert [one.ids for one in found] == [one.ids for one in alone]
            assert [one.score for one in found] == pytest.approx([one.score for one in alone], abs=TOLERANCE)


# case G1: several batches at once
@pytest.mark.parametrize("beams", [1, 5])
def test_streams_change_nothing(translator, lines, one_by_one, beams):
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = translator.hypotheses(lines, batch_size=4, beam_size=beams, n_best=min(2, beams))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert_same(found, one_by_one[beams])


def test_an_error_in_a_stream_is_raised_and_the_threads_are_given_back(translator, lines):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)

    def fail(*_):
        raise ZeroDivisionError

    handle = translator.model.encoder.register_forward_pre_hook(fail)
    try:
        with pytest.raises(ZeroDivisionError):
            translator.hypotheses(lines, batch_size=4)
        assert torch.get_num_threads() == 2
    finally:
        handle.remove()
        torch.set_num_threads(threads)


# case G13
@pytest.mark.parametrize("changes", [{"beam_size": 1}, {"beam_size": 4, "n_best": 4}])
def test_prefixes_of_many_lengths_in_one_batch(translator, changes):
    texts = ["badgehead", "cabbagefade", "fed", "hag", "deface"]
    prefixes = ["BADGEHEAD", "", "F", "CABB", "DEFACEDHA"]  # lengths 9, 0, 1, 4, 9; not all of them likely
    together = translator.hypotheses(texts, prefixes=prefixes, **changes)
    apart = [
        translator.hypotheses([text], prefixes=[prefix], **changes)[0]
        for text, prefix in zip(texts, prefixes, strict=True)
    ]
    assert_same(together, apart)
    for text, prefix, found in zip(texts, prefixes, together, strict=True):
        only_the_prefix_fits = len(prefix) >= translator.options.length_limit(len(text))
        assert len(found) == (1 if only_the_prefix_fits else changes.get("n_best", 1))
        assert all(one.text.startswith(prefix) for one in found)
    # A prefix' log-probability counts, as the model sees it.
    scores = translator.score(texts, [found[0].text for found in together])
    assert [found[0].log_probability for found in together] == pytest.approx(
        [score.log_probability for score in scores], abs=TOLERANCE
    )
    # An empty prefix is none.
    assert_same([together[1]], translator.hypotheses(["cabbagefade"], **changes))


# case G13
def test_a_prefix_that_the_model_would_have_written_changes_nothing(translator, lines):
    free = translator.hypotheses(lines[:10], beam_size=1)
    prefixes = [found[0].text[: place % 4] for place, found in enumerate(free)]
    assert_same(translator.hypotheses(lines[:10], prefixes=prefixes, beam_size=1), free)


def test_scores_do_not_depend_on_the_batch(translator, lines):
    targets = [line[::-1].upper() for line in lines]
    alone = [translator.score([line], [target])[0] for line, target in zip(lines, targets, strict=True)]
    together = translator.score(lines[::-1], targets[::-1])[::-1]
    assert [one.tokens for one in together] == [len(target) + 1 for target in targets]
    assert [one.log_probability for one in together] == pytest.approx(
        [one.log_probability for one in alone], abs=TOLERANCE
    )
