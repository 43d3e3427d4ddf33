"""What a model is to learn: its batches, its loss and its validation in one object. The trainer knows no more of it.

There are three: a target from its source (`pairs.py`), the next token (`next_token.py`), masked tokens
(`masked_token.py`). `objectives.py` makes the one that fits a recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import nn

from clearhead.config import ModelConfig
from clearhead.training.glance import Glance
from clearhead.training.predictions import Predictions
from clearhead.training.validation import Validation


class Epoch(Protocol):
    """The batches of one time through the data."""

    @property
    def largest(self) -> int:
        """The batch that needs the most memory."""

    def __len__(self) -> int: ...

    def batch(self, number: int) -> Any:
        """A batch: it has `target_tokens`, `to(device)` and `describe()`."""


class Objective(Protocol):
    """Something to learn, and the data to learn it from."""

    config: ModelConfig
    """The shape of the model."""

    def epoch(self, number: int) -> Epoch:
        """The batches of an epoch, counted from 0: a pure function of the data, the recipe and the number."""

    def predict(self, model: Any, batch: Any) -> Predictions:
        """What the model is to get right in a batch."""

    def validate(self, model: nn.Module, check_stop: Callable[[], None]) -> Validation:
        """Measure the model on the validation data; leaves no trace in it, in its mode or in the random numbers.

        `check_stop` is called now and then, and may raise to break off.
        """

    def glance(self, batch: Any) -> Glance:
        """A few texts of a batch, to look inside the model with."""
