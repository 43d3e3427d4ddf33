"""Native attention of single queries, against equation 1 in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead import kernels
from clearhead.parts.attention import scaled_dot_product_attention

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="this machine has no C++ compiler")


@settings(deadline=None, max_examples=40)
@given(
    sentences=st.integers(1, 4), beams=st.integers(1, 3), entries=st.integers(1, 9), key_heads=st.integers(1, 3),
    group=st.integers(1, 3), width=st.integers(1, 20), masked=st.sampled_from(["not", "a sentence", "each"]),
    all_rows=st.booleans(), seed=st.integers(0, 999),
)  # fmt: skip
def test_it_is_equation_1(sentences, beams, entries, key_heads, group, width, masked, all_rows, seed) -> None:
    """For every kind of mask, rows that fill the grid or not, and grouped heads; a lonely query gets zeros."""
    generator = torch.Generator().manual_seed(seed)
    heads = key_heads * group
    # Room for more entries than there are, as in a cache; an entry's heads lie side by side.
    key, value = (
        torch.randn(sentences, entries + 2, key_heads, width, generator=generator).transpose(1, 2)[:, :, :entries]
        for _ in range(2)
    )
    query = 3 * torch.randn(sentences * beams, heads * width, generator=generator)
    mask = None
    if masked != "not":
        rows = 1 if masked == "a sentence" else beams
        mask = torch.rand(sentences, 1, rows, entries, generator=generator) < 0.5
    places = None if all_rows else torch.randperm(sentences * beams, generator=generator)[: 1 + sentences * beams // 2]
    chosen = torch.arange(sentences * beams) if places is None else places

    found = kernels.attend(query[chosen], key, value, mask, places=places, beams=beams)

    grid = query.double().view(sentences, beams, heads, width).transpose(1, 2)
    whole = (each.double().repeat_interleave(group, 1) for each in (key, value))
    expected, _ = scaled_dot_product_attention(grid, *whole, mask)
    expected = expected.transpose(1, 2).reshape(sentences * beams, -1)[chosen]
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_large_scores_do_not_overflow() -> None:
    key = torch.tensor([[[[1e4, 0.0], [-1e4, 0.0], [9e3, 0.0]]]])
    value = torch.tensor([[[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]])
    found = kernels.attend(torch.tensor([[1e3, 0.0]]), key, value, None, places=None, beams=1)
    assert torch.equal(found, torch.tensor([[1.0, 2.0]]))


def test_nan_of_an_entry_that_is_hidden_does_not_spread() -> None:
    key, value = torch.randn(2, 1, 1, 3, 4).unbind()
    value[0, 0, 1] = torch.nan
    key[0, 0, 1] = torch.nan
    mask = torch.tensor([True, False, True]).view(1, 1, 1, 3)
    assert kernels.attend(torch.randn(1, 4), key, value, mask, places=None, beams=1).isfinite().all()
