"""Masks say who may look at whom: boolean, `True` = may attend. They are made here and nowhere else.

A mask broadcasts against the scores `(b, h, q, k)`; with a head axis of length 1 it serves every head alike.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from clearhead.errors import ConfigError


def padding_mask(ids: Int[Tensor, "b k"], pad: int) -> Bool[Tensor, "b 1 1 k"]:
    """Every real token may be attended to, padding may not: `(b, k)` token ids give `(b, 1, 1, k)`."""
    return (ids != pad)[:, None, None, :]


def causal_mask(q: int, k: int, device: torch.device | None = None) -> Bool[Tensor, "q k"]:
    """No position sees a later one (section 3.2.3): `(q, k)`, the lower triangle, aligned bottom-right.

    The queries are the *last* `q` of `k` positions, so query `i` stands at position `k - q + i`. With a cache this is
    what decoding needs; torch's own `is_causal` is aligned top-left and would show a new query the first key only.
    """
    return torch.ones(q, k, dtype=torch.bool, device=device).tril(diagonal=k - q)


def document_mask(documents: Int[Tensor, "b t"]) -> Bool[Tensor, "b 1 t t"]:
    """Of several documents in one row each sees itself alone: `documents` says to which one every token belongs."""
    return (documents[:, :, None] == documents[:, None, :])[:, None]


def as_boolean(mask: Tensor | None) -> Tensor | None:
    """The mask as booleans: 0/1 integers, as tokenizers give them, are accepted, numbers with a fraction are not.

    Raises `ConfigError` for a floating-point mask. Torch would *add* it to the scores, so that a 0/1 mask would hide
    nothing at all: such a mistake must not pass in silence.
    """
    if mask is None or mask.dtype == torch.bool:
        return mask
    if mask.is_floating_point() or mask.is_complex():
        raise ConfigError(
            f"a mask of {mask.dtype} is ambiguous (added to the scores, or 0/1?); give a boolean one, True = may attend"
        )
    return mask != 0
