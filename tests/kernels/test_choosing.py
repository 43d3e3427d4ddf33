"""The logarithm of a sum of exponentials and the largest of a row, natively: against float64 and a whole sort."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead import kernels

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="this machine has no C++ compiler")


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(0, 5), columns=st.integers(1, 100), size=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    hidden=st.booleans(), seed=st.integers(0, 999),
)  # fmt: skip
def test_log_sum_exp(rows, columns, size, hidden, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = size * torch.randn(rows, columns, generator=generator)
    if hidden:
        x[:, 1:] = x[:, 1:].masked_fill(torch.rand(rows, columns - 1, generator=generator) < 0.5, -math.inf)
    expected = x.double().logsumexp(-1)
    torch.testing.assert_close(kernels.log_sum_exp(x).double(), expected, rtol=1e-6, atol=2e-6)


def test_log_sum_exp_of_a_broken_row() -> None:
    x = torch.zeros(3, 40)
    x[1, 17] = math.nan
    x[2, 39] = math.nan
    assert kernels.log_sum_exp(x).isfinite().tolist() == [True, False, False]


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(0, 5), columns=st.integers(1, 100), k=st.integers(1, 12), levels=st.sampled_from([2, 10, 10**6]),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_top_k(rows, columns, k, levels, seed) -> None:
    """Of equal ones the first; minus infinities too, where there is nothing else."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, levels, (rows, columns), generator=generator).float()
    x = x.masked_fill(torch.rand(rows, columns, generator=generator) < 0.3, -math.inf)
    best, places = kernels.top_k(x, k)
    expected, order = x.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(best, expected[:, :k])
    assert torch.equal(places, order[:, :k])


def test_strides() -> None:
    x = torch.randn(40, 3).T
    torch.testing.assert_close(kernels.log_sum_exp(x), x.logsumexp(-1))
    assert torch.equal(kernels.top_k(x, 2)[1], x.topk(2).indices)
