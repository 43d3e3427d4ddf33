"""Where a training stands: what, beside weights, moments and random numbers, a resumed run has to know."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Window:
    """Sums since the last line of the log."""

    updates: int = 0
    tokens: int = 0
    """Target tokens of applied updates."""
    loss: float = 0.0
    """Smoothed loss, summed over target tokens, in nats."""
    plain: float = 0.0
    """Negative log-likelihood, the same way."""
    norm: float = 0.0
    """Gradient norms before clipping, summed over updates."""
    seconds: float = 0.0
    """Time of the updates alone, without validation and saving."""

    def add(self, *, loss: float, plain: float, norm: float, tokens: int, seconds: float) -> None:
        """Count one applied update, its losses given as means over its target tokens."""
        self.updates += 1
        self.tokens += tokens
        self.loss += loss * tokens
        self.plain += plain * tokens
        self.norm += norm
        self.seconds += seconds


@dataclass
class TrainingState:
    """Everything is as of the end of update `update`."""

    update: int = 0
    """Applied updates; skipped ones don't count, so the learning rate is a function of this number alone."""
    epoch: int = 0
    batch: int = 0
    """The next batch: its number within the plan of `epoch`."""
    batch_tokens: int = 0
    """The budget that plan was made with."""
    skipped: int = 0
    skipped_in_a_row: int = 0
    """Updates left out because of gradients that are not finite."""
    validated_at: int = 0
    """The update of the last validation."""
    best_value: float | None = None
    best_update: int = 0
    stale: int = 0
    """Validations since the best one."""
    snapshots: list[int] = field(default_factory=list)
    """Updates whose weights are kept for averaging, oldest first."""
    log_lines: int = 0
    """Lines of `metrics.jsonl`."""
    seconds: float = 0.0
    """Time in the training loop, validation and saving included, over all resumed parts."""
    update_seconds: float = 0.0
    """Time of the updates alone."""
    target_tokens: int = 0
    """Target tokens trained on."""
    window: Window = field(default_factory=Window)

    def to_dict(self) -> dict[str, Any]:
        """Every field, as JSON types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> TrainingState:
        """The inverse of `to_dict`. Raises `TypeError` when a field is unknown."""
        return cls(**{**fields, "window": Window(**fields["window"])})
