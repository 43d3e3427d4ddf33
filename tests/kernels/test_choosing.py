"""The best logits of a row and the logarithm of their sum, natively: against all logits in float64 and a sort."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead import kernels
from clearhead.kernels import Panels

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="this machine has no C++ compiler")
NOBODY = torch.zeros(0, dtype=torch.long)


@settings(deadline=None, max_examples=80)
@given(
    rows=st.integers(0, 20), depth=st.integers(1, 20), columns=st.integers(1, 700), k=st.integers(1, 8),
    size=st.sampled_from([0.1, 3.0, 100.0]), biased=st.booleans(), threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_any_shape(rows, depth, columns, k, size, biased, threads, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, weight = size * torch.randn(rows, depth, generator=generator), torch.randn(columns, depth, generator=generator)
    bias = torch.randn(columns, generator=generator) if biased else None
    k = min(k, columns)
    banned = torch.randperm(columns, generator=generator)[: min(3, columns - k)]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        normalizers, best, places = Panels(weight, bias).best(x, k, banned)
    finally:
        torch.set_num_threads(before)

    logits = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    near = {"rtol": 1e-5, "atol": 1e-5 * size}
    torch.testing.assert_close(normalizers.double(), logits.logsumexp(-1), **near)
    logits[:, banned] = -math.inf
    torch.testing.assert_close(best.double(), logits.sort(dim=-1, descending=True).values[:, :k], **near)
    torch.testing.assert_close(best.double(), logits.gather(1, places), **near)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 30, 1500])
def test_the_shape_of_a_model(rows: int, threads: int) -> None:
    """More columns than one look takes, and more rows than one block; of equal logits the first is the better one."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-2, 3, (rows, 512), generator=generator).float()
    weight = torch.randint(-1, 2, (2100, 512), generator=generator).float()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        normalizers, best, places = Panels(weight, None).best(x, 5, torch.tensor([0, 1, 3]))
    finally:
        torch.set_num_threads(before)
    logits = x @ weight.T  # small whole numbers: exact, and many of them equal
    torch.testing.assert_close(normalizers, logits.logsumexp(-1))
    logits[:, [0, 1, 3]] = -math.inf
    expected, order = logits.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(best, expected[:, :5])
    assert torch.equal(places, order[:, :5])


def test_fewer_candidates_than_asked_for() -> None:
    """What is banned is never among them: minus infinity stands in its place."""
    _, best, places = Panels(torch.eye(4), None).best(torch.ones(2, 4), 4, torch.tensor([0, 1, 3]))
    assert best.tolist() == [[1.0, -math.inf, -math.inf, -math.inf]] * 2
    assert places[:, 0].tolist() == [2, 2]


def test_a_broken_row_stays_so() -> None:
    x = torch.ones(3, 4)
    x[1] = math.nan
    normalizers, _, _ = Panels(torch.randn(90, 4), None).best(x, 2, NOBODY)
    assert normalizers.isfinite().tolist() == [True, False, True]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("impossible", [slice(0, 1500), slice(1500, 3000), slice(0, 2999)])
def test_logits_of_minus_infinity(impossible: slice, threads: int) -> None:
    """However many stand side by side."""
    generator = torch.Generator().manual_seed(2)
    x, weight = torch.randn(40, 16, generator=generator), torch.randn(3000, 16, generator=generator)
    bias = torch.zeros(3000)
    bias[impossible] = -math.inf
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        normalizers, best, _ = Panels(weight, bias).best(x, 1, NOBODY)
    finally:
        torch.set_num_threads(before)
    logits = x @ weight.T + bias
    torch.testing.assert_close(normalizers, logits.logsumexp(-1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(best, logits.amax(-1, keepdim=True), rtol=1e-5, atol=1e-5)
