"""The options of decoding: what makes no sense is refused before anything is decoded."""

from __future__ import annotations

import math

import pytest

from clearhead.decoding.options import DecodingOptions, changed
from clearhead.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_size", 0),
        ("beam_size", 2.0),
        ("beam_size", True),
        ("beam_size", "5"),
        ("n_best", 0),
        ("length_penalty", -0.1),
        ("length_penalty", math.nan),
        ("length_penalty", None),
        ("max_length_ratio", -1.0),
        ("max_length_ratio", math.inf),
        ("max_length_extra", -1),
        ("temperature", 0.0),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("seed", -1),
        ("max_source_length", 0),
        ("batch_size", 0),
    ],
)
def test_a_value_that_makes_no_sense_is_named(name, value):
    with pytest.raises(ConfigError, match=f"{name} = {value!r}"):
        changed(DecodingOptions(), {name: value})


# case S6
def test_more_outputs_than_the_beam_keeps_are_refused_where_both_are_given():
    with pytest.raises(ConfigError, match="n_best = 10 asks for more hypotheses than beam_size = 5"):
        DecodingOptions(n_best=10)
    with pytest.raises(ConfigError, match="use a beam of 3"):
        changed(DecodingOptions(), {"n_best": 3, "beam_size": 2})


# case S6
def test_asking_for_more_outputs_alone_widens_the_beam():
    assert changed(DecodingOptions(), {"n_best": 10}).beam_size == 10
    assert changed(DecodingOptions(), {"n_best": 2}).beam_size == 5  # but never narrows it
    sampled = changed(DecodingOptions(), {"n_best": 10, "sample": True})
    assert (sampled.beam_size, sampled.hypotheses) == (5, 10)


@pytest.mark.parametrize("n_best", ["abc", 2.5, None])
def test_a_number_of_outputs_that_is_none(n_best):
    with pytest.raises(ConfigError, match="n_best"):
        changed(DecodingOptions(), {"n_best": n_best})


def test_an_option_that_there_is_not():
    with pytest.raises(ConfigError, match=r"no option 'beams'; the options are beam_size, "):
        changed(DecodingOptions(), {"beams": 5})


def test_the_length_limit_grows_with_the_source():
    options = DecodingOptions(max_length_ratio=1.5, max_length_extra=7)
    assert [options.length_limit(length) for length in (1, 2, 300)] == [8, 10, 457]
    assert DecodingOptions(max_length_ratio=0.0, max_length_extra=0).length_limit(9) == 1


def test_the_length_penalty_is_the_published_formula():
    assert DecodingOptions(length_penalty=0.0).score(-3.0, 7) == -3.0
    assert DecodingOptions(length_penalty=1.0).score(-3.0, 7) == pytest.approx(-3.0 * 6 / 12)
    assert DecodingOptions(length_penalty=0.6).score(-3.0, 1) == pytest.approx(-3.0)
    assert DecodingOptions(length_penalty=0.6).score(-3.0, 19) == pytest.approx(-3.0 / 4**0.6)
