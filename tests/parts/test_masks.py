"""Masks: `True` = may attend, everywhere."""

import pytest
import torch

from clearhead.errors import ConfigError
from clearhead.parts.masks import as_boolean, causal_mask, padding_mask


# case M4
def test_padding_may_not_be_attended_to():
    ids = torch.tensor([[5, 6, 9, 0, 0], [7, 9, 0, 0, 0]])
    mask = padding_mask(ids, 0)
    assert mask.shape == (2, 1, 1, 5)
    assert mask.dtype == torch.bool
    assert mask[:, 0, 0].tolist() == [[True, True, True, False, False], [True, True, False, False, False]]
    assert padding_mask(ids, 9)[1, 0, 0].tolist() == [True, False, True, True, True]


# case M4
def test_causality_hides_the_future():
    rows = ["".join("x" if allowed else "." for allowed in row) for row in causal_mask(3, 5).tolist()]
    assert rows == ["xxx..", "xxxx.", "xxxxx"]
    assert causal_mask(3, 3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(3, 2).tolist() == [[False, False], [True, False], [True, True]]


# case M5
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool])
def test_whole_numbers_are_booleans(dtype):
    mask = as_boolean(torch.tensor([1, 0, 1], dtype=dtype))
    assert mask.dtype == torch.bool
    assert mask.tolist() == [True, False, True]


# case M5
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64])
def test_fractions_are_refused(dtype):
    with pytest.raises(ConfigError, match=rf"a mask of {dtype} is ambiguous .* True = may attend"):
        as_boolean(torch.ones(3, dtype=dtype))


def test_no_mask_stays_none():
    assert as_boolean(None) is None
