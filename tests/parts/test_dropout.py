"""Dropout with eight random bits: its definition, its share, its gradient, its place in the random numbers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.parts.dropout import Dropout


@settings(deadline=None)
@given(
    shape=st.lists(st.integers(1, 7), max_size=4),
    p=st.sampled_from([0.002, 0.1, 0.3, 0.5, 0.9, 0.999]),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_elements_are_dropped_or_scaled(shape, p, seed, dtype):
    torch.manual_seed(seed)
    x = (torch.rand(shape, dtype=dtype) + 0.5).requires_grad_()
    found = Dropout(p)(x)
    kept = found != 0
    rounded = round(p * 256) / 256
    expected = torch.where(kept, x / (1 - rounded) if rounded < 1 else x, 0.0)
    torch.testing.assert_close(found, expected)
    assert found.dtype == dtype
    weights = torch.rand(shape, dtype=dtype)
    (found * weights).sum().backward()
    torch.testing.assert_close(x.grad, torch.where(kept, weights / (1 - rounded) if rounded < 1 else weights, 0.0))


@pytest.mark.parametrize("p", [1 / 256, 0.1, 0.3, 0.5, 0.75])
def test_each_element_is_dropped_with_the_probability(p):
    """Within five deviations, over elements; and the mean stays, so what follows sees what it sees in evaluation."""
    torch.manual_seed(1)
    count, rounded = 1_000_003, round(p * 256) / 256
    found = Dropout(p)(torch.ones(count))
    deviation = (rounded * (1 - rounded) / count) ** 0.5
    assert (found == 0).double().mean().item() == pytest.approx(rounded, abs=5 * deviation)
    assert found.double().mean().item() == pytest.approx(1.0, abs=5 * deviation / (1 - rounded))
    assert abs(rounded - p) <= 1 / 512


def test_neighbours_are_dropped_independently():
    """Bytes of one random word belong to neighbouring elements; each pair of them is dropped as often as it should."""
    torch.manual_seed(2)
    dropped = (Dropout(0.25)(torch.ones(400_000, 8)) == 0).double()
    expected = torch.full((8, 8), 0.0625, dtype=torch.float64).fill_diagonal_(0.25)
    torch.testing.assert_close(
        dropped.T @ dropped / len(dropped), expected, rtol=0, atol=5 * 0.25 / len(dropped) ** 0.5
    )


def test_it_draws_from_torchs_stream():
    """So a seed repeats it, saved random states resume it, and each call is another one."""
    dropout, x = Dropout(0.4), torch.ones(1000)
    torch.manual_seed(3)
    first, second = dropout(x), dropout(x)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)


def test_outside_training_and_without_probability_nothing_happens():
    x = torch.randn(5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_all_may_be_dropped():
    assert torch.equal(Dropout(1.0)(torch.ones(9)), torch.zeros(9))
