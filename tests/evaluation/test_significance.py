"""The paired bootstrap: against an enumeration of every draw, and in the cases whose answer is plain."""

from itertools import product

import pytest

from clearhead.evaluation import compare_outputs
from clearhead.evaluation.metrics import EditCounts
from clearhead.evaluation.significance import COMPARED_METRICS, bootstrap_p_value

REFERENCES = [[f"the {animal} sees a {thing} ."] for animal in ("dog", "cat", "cow") for thing in "abcdefgh"]
GOOD = [acceptable[0] for acceptable in REFERENCES]
BAD = [text.replace("sees a", "looked") for text in GOOD]


def enumerated_p_value(first: EditCounts, second: EditCounts) -> float:
    """The share of all n**n draws at least as far from the observed difference as that is from zero."""
    lines = range(len(first.edits))

    def difference(drawn: tuple[int, ...]) -> float:
        one = sum(first.edits[line] for line in drawn) / sum(first.lengths[line] for line in drawn)
        two = sum(second.edits[line] for line in drawn) / sum(second.lengths[line] for line in drawn)
        return two - one

    observed = difference(tuple(lines))
    draws = [difference(drawn) for drawn in product(lines, repeat=len(lines))]
    return sum(abs(draw - observed) >= abs(observed) - 1e-12 for draw in draws) / len(draws)


def test_p_value_equals_the_enumeration_of_all_draws() -> None:
    first = EditCounts([3, 1, 2, 0, 4], [5, 4, 6, 3, 7])
    second = EditCounts([2, 1, 0, 1, 3], [5, 5, 6, 3, 7])
    exact = enumerated_p_value(first, second)
    assert 0.02 < exact < 0.98
    sampled = bootstrap_p_value(first, second, draws=20_000, seed=3)
    assert sampled == pytest.approx(exact, abs=0.012)  # three standard errors of 20,000 draws


def test_equal_outputs_do_not_differ() -> None:
    for result in compare_outputs(BAD, list(BAD), REFERENCES, draws=50):
        assert result.difference == 0
        assert result.p_value == 1.0


def test_a_plain_difference_is_found_by_every_metric_in_its_direction() -> None:
    results = compare_outputs(BAD, GOOD, REFERENCES, draws=200)
    assert [result.metric for result in results] == list(COMPARED_METRICS)
    for result in results:
        assert result.p_value < 0.05
        assert (result.difference < 0) == (result.metric in ("ter", "per", "cer"))


def test_a_difference_of_one_line_could_be_chance() -> None:
    results = compare_outputs([*GOOD[:-1], "x"], GOOD, REFERENCES, metrics=["exact_match", "per"], draws=200)
    assert [result.metric for result in results] == ["exact_match", "per"]
    assert all(result.p_value > 0.2 for result in results)


def test_the_same_seed_gives_the_same_answer_and_the_order_does_not_matter() -> None:
    mixed = [*BAD[:6], *GOOD[6:]]
    here = compare_outputs(mixed, GOOD, REFERENCES, draws=100)
    assert here == compare_outputs(mixed, GOOD, REFERENCES, draws=100)
    back = compare_outputs(GOOD, mixed, REFERENCES, draws=100)
    for forwards, backwards in zip(here, back, strict=True):
        assert forwards.difference == pytest.approx(-backwards.difference)
        assert forwards.p_value == pytest.approx(backwards.p_value)
