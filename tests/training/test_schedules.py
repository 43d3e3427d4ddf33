"""The learning rates against the paper's formula, and at the edges."""

from __future__ import annotations

import math

import pytest

from clearhead.training.schedules import learning_rate


# case T5
@pytest.mark.parametrize("warmup", [1, 10, 4000])
@pytest.mark.parametrize("update", [1, 2, 3, 4, 5, 3999, 4000, 4001, 100_000])
def test_the_papers_formula(warmup: int, update: int) -> None:
    expected = 512**-0.5 * min(update**-0.5, update * warmup**-1.5)
    assert learning_rate("paper", update, peak=99.0, warmup=warmup, d_model=512) == expected


# case T5
@pytest.mark.parametrize("warmup", [1, 7, 4000])
def test_inverse_sqrt_is_the_papers_with_another_peak(warmup: int) -> None:
    for update in (1, 2, 3, 7, 8, 4000, 5000):
        papers = learning_rate("paper", update, peak=0.0, warmup=warmup, d_model=256)
        own = learning_rate("inverse_sqrt", update, peak=256**-0.5 * warmup**-0.5, warmup=warmup)
        assert own == pytest.approx(papers, rel=1e-12)


# case T5
@pytest.mark.parametrize("kind", ["inverse_sqrt", "cosine", "constant", "paper"])
@pytest.mark.parametrize(("warmup", "total"), [(0, 10), (1, 10), (10, 10), (25, 10), (0, 1), (1, 1)])
def test_every_update_has_a_rate_above_zero(kind: str, warmup: int, total: int) -> None:
    rates = [learning_rate(kind, u, peak=1e-3, warmup=warmup, total=total, d_model=64) for u in range(1, total + 1)]
    assert all(math.isfinite(rate) and rate > 0 for rate in rates)
    if kind != "paper":
        assert rates[0] == pytest.approx(1e-3 / max(1, warmup))
        assert max(rates) <= 1e-3 * (1 + 1e-12)


def test_the_peak_is_reached_at_the_end_of_the_warm_up() -> None:
    for kind in ("inverse_sqrt", "cosine", "constant"):
        assert learning_rate(kind, 8, peak=0.5, warmup=8, total=20) == 0.5
        assert learning_rate(kind, 4, peak=0.5, warmup=8, total=20) == 0.25


def test_cosine_falls_to_its_floor_one_update_after_the_last() -> None:
    rates = [learning_rate("cosine", u, peak=1.0, warmup=4, total=20, floor=0.1) for u in range(4, 22)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-2] > 0.1
    assert rates[-1] == pytest.approx(0.1)
    middle = learning_rate("cosine", 12, peak=1.0, warmup=4, total=19, floor=0.1)  # half of the 16 steps
    assert middle == pytest.approx(0.55)


def test_cosine_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="last update"):
        learning_rate("cosine", 5, peak=1.0, warmup=1)
