"""Masked tokens (Devlin et al., 2019, section 3.1): 15 % of a text's tokens are chosen, to be predicted.

Of those 80 % are shown as the mask, 10 % as another token, and 10 % as they are: so the model can't tell by the mask
alone where it is asked, and has to keep a good idea of every token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CHOSEN, MASKED, REPLACED = 0.15, 0.8, 0.1


class Masked(NamedTuple):
    """A text to guess at."""

    shown: NDArray[np.int64]
    """`(t,)`: what the model reads."""
    wanted: NDArray[np.int64]
    """`(t,)`: what was there, at the chosen places; -1 elsewhere."""


@dataclass(frozen=True)
class Masking:
    """How tokens are chosen and shown.

    A control token is never chosen, and never put in another's place.
    """

    mask: int
    vocab_size: int
    control: Sequence[int]

    @cached_property
    def ordinary(self) -> NDArray[np.int64]:
        """The tokens that are text."""
        return np.setdiff1d(np.arange(self.vocab_size), self.control)

    def apply(self, ids: NDArray[np.int64], random: np.random.Generator) -> Masked:
        """Choose and show, as the numbers fall: the same generator gives the same."""
        choose, show, other = random.random((3, len(ids)))
        may_be = ~np.isin(ids, self.control)
        chosen = may_be & (choose < CHOSEN)
        if not chosen.any() and may_be.any():  # something has to be learned from every text
            chosen[np.where(may_be, choose, np.inf).argmin()] = True
        shown = np.where(chosen & (show < MASKED), self.mask, ids)
        replaced = chosen & (show >= MASKED) & (show < MASKED + REPLACED)
        shown[replaced] = self.ordinary[(other[replaced] * len(self.ordinary)).astype(np.int64)]
        return Masked(shown, np.where(chosen, ids, -1))
