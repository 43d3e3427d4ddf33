"""The native products, against float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead import kernels
from clearhead.kernels import Int8Panels, Int16Panels, Panels

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="this machine has no C++ compiler")
needs_int16 = pytest.mark.skipif(not kernels.has("int16"), reason="this processor has no AVX2")
needs_int8 = pytest.mark.skipif(not kernels.has("int8"), reason="this processor has no AVX512-VNNI")
KINDS = [Panels, pytest.param(Int16Panels, marks=needs_int16), pytest.param(Int8Panels, marks=needs_int8)]
MOST_WRONG = {Panels: 1e-6, Int16Panels: 1e-4, Int8Panels: 2e-2}
"""Of the product of both factors' norms."""


def matrices(rows: int, depth: int, columns: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of very different sizes, and a matrix whose rows are so too."""
    generator = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(n, depth, generator=generator) for n in (rows, columns))
    x *= 10 ** torch.randint(-3, 4, (rows, 1), generator=generator)
    weight *= 10.0 ** torch.randint(-3, 2, (columns, 1), generator=generator)
    return x, weight, torch.randn(columns, generator=generator)


def in_float64(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x.double() @ weight.double().T + (0 if bias is None else bias.double())


def roundings(kind: type[Panels], x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor | float:
    """How far off each product may be at most, if each factor is off by half a step, `(rows, columns)`; of 8 bits the
    largest number of a row of `x` by a whole one.

    `|sum (a + da)(b + db) - sum ab| <= |da| sum |b| + |db| sum |a| + k |da| |db|`.
    """
    if kind is Panels:
        return 0.0
    x, weight = x.double(), weight.double()
    if kind is Int16Panels:
        wrong = [torch.maximum(m.norm(dim=1) / 46_000, m.abs().amax(1) / 32_767) / 2 for m in (x, weight)]
    else:
        wrong = [(x.amax(1).clamp(min=0) - x.amin(1).clamp(max=0)) / 255, weight.abs().amax(1) / 127 / 2]
    a, b = wrong[0][:, None], wrong[1][None]
    return a * weight.abs().sum(1) + b * x.abs().sum(1)[:, None] + x.size(1) * a * b


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(0, 40), depth=st.integers(1, 70), columns=st.integers(1, 70), seed=st.integers(0, 99),
    biased=st.booleans(),
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_any_shape(kind: type[Panels], rows, depth, columns, seed, biased) -> None:
    x, weight, bias = matrices(rows, depth, columns, seed)
    expected = in_float64(x, weight, bias if biased else None)
    product = kind(weight, bias if biased else None).product(x)
    size = x.double().norm(dim=1)[:, None] * weight.double().norm(dim=1)
    allowed = 1e-6 * size + 1e-6 * expected.abs() + roundings(kind, x, weight)
    assert product.dtype == torch.float32
    assert ((product - expected).abs() <= allowed).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 512, 2048), (1500, 512, 96), (300, 2048, 17)])
def test_shapes_of_models(kind: type[Panels], rows: int, depth: int, columns: int) -> None:
    """Larger than one block of rows too."""
    x, weight, bias = matrices(rows, depth, columns, 1)
    expected = in_float64(x, weight, bias)
    size = x.double().norm(dim=1)[:, None] * weight.double().norm(dim=1)
    error = (kind(weight, bias).product(x) - expected).abs() / (size + bias.abs())
    assert error.max() < MOST_WRONG[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_two_threads_give_the_same(kind: type[Panels]) -> None:
    x, weight, bias = matrices(30, 64, 200, 5)
    panels = kind(weight, bias)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = panels.product(x)
        torch.set_num_threads(2)
        assert torch.equal(panels.product(x), expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_the_others(kind: type[Panels]) -> None:
    """To the last bit, whatever group of rows it falls into: torch's own product does not promise that."""
    x, weight, bias = matrices(23, 130, 45, 2)
    panels = kind(weight, bias)
    together = panels.product(x)
    for first in range(23):
        for last in range(first + 1, 24):
            assert torch.equal(panels.product(x[first:last]), together[first:last])


@pytest.mark.parametrize("kind", KINDS)
def test_leading_axes_and_strides(kind: type[Panels]) -> None:
    x, weight, bias = matrices(24, 20, 9, 3)
    panels = kind(weight.T.contiguous().T, bias)
    folded = x.view(2, 3, 4, 20)
    assert torch.equal(panels.product(folded), panels.product(x).view(2, 3, 4, 9))
    strided = torch.empty(20, 24).T.copy_(x)
    assert torch.equal(panels.product(strided), panels.product(x))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so(kind: type[Panels], broken: float) -> None:
    """A broken model must not look whole, and a broken row must not spoil the others."""
    x, weight, bias = matrices(7, 33, 5, 4)
    x[2] = broken
    product = kind(weight, bias).product(x)
    assert not product[2].isfinite().any()
    assert product[[0, 1, 3, 4, 5, 6]].isfinite().all()


@needs_int16
@pytest.mark.parametrize("depth", [1, 2, 513, 4096])
@pytest.mark.parametrize("row", ["ones", "spike", "alternating"])
def test_no_sum_overflows(depth: int, row: str) -> None:
    """The largest sums that there can be: both factors alike, and all of one size or all in one place."""
    x = torch.ones(1, depth)
    if row == "spike":
        x[0, 1:] = 1e-3
    elif row == "alternating":
        x[0, 1::2] = -1.0
    product = Int16Panels(torch.cat([x, -x]), None).product(x)
    square = float((x.double() ** 2).sum())
    torch.testing.assert_close(product, torch.tensor([[square, -square]]), rtol=1e-3, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_are_exact(kind: type[Panels]) -> None:
    x = torch.zeros(3, 8)
    x[1] = torch.arange(8.0)
    product = kind(torch.tensor([[0.0] * 8, [1.0] + [0.0] * 7]), torch.tensor([0.5, 0.25])).product(x)
    torch.testing.assert_close(product, torch.tensor([[0.5, 0.25]] * 3), rtol=0, atol=0)


@needs_int8
@pytest.mark.parametrize(("least", "most"), [(-1.0, 1.0), (0.0, 1.0), (-3.0, -1.0), (-1e-3, 255.0), (2.0, 2.0)])
def test_the_ends_of_a_range_do_not_wrap_around(least: float, most: float) -> None:
    """The 256th step would be taken for the first."""
    x = torch.linspace(least, most, 64)[:, None].repeat(1, 2)
    x[:, 1] = torch.linspace(most, least, 64)
    product = Int8Panels(torch.eye(2), None).product(x)
    assert (product - x).abs().max() <= (max(most, 0.0) - min(least, 0.0)) / 255 * 1.01
