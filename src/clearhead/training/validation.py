"""What a validation finds, whatever the model learns, and whether it is the best so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from clearhead.recipe import LOWER_IS_BETTER, Metric, TrainingSection
from clearhead.training.loss import plain_loss
from clearhead.training.step import Predict, autocast

LOGITS_AT_A_TIME = 2**26


class Sample(NamedTuple):
    """One validation text, and what the model now makes of it."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Validation:
    """What one validation found."""

    loss: float
    """Negative log-likelihood, without smoothing, in nats per predicted token (of pairs the end token is one)."""
    metric: Metric
    value: float
    """Of the metric, in percent; the loss if that is the metric."""
    samples: list[Sample]
    seconds: float
    others: Mapping[str, float] = field(default_factory=dict)
    """Further numbers by name."""

    def record(self) -> dict[str, Any]:
        """What goes to the log."""
        numbers = {"loss": self.loss, "perplexity": perplexity(self.loss), self.metric: self.value}
        values = {**numbers, **self.others, "seconds": self.seconds}
        # JSON has neither infinity nor NaN
        return {key: value if math.isfinite(value) else None for key, value in values.items()}


def perplexity(loss: float) -> float:
    """e to the loss: among how many tokens the model is as unsure as if they were equally likely."""
    return math.exp(loss) if loss < 700 else math.inf


class Found(NamedTuple):
    """What the right tokens of some batches came to."""

    loss: float
    """Mean negative log-likelihood, in nats."""
    accuracy: float
    """Percentage of them that are the likeliest token."""


def measure_predictions(
    model: nn.Module,
    batches: Iterable[Any],
    predict: Predict,
    options: TrainingSection,
    device: torch.device,
    check_stop: Callable[[], None],
) -> Found:
    """The plain loss over batches, and how often the right token is the likeliest."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    right = torch.zeros((), dtype=torch.int64, device=device)
    tokens = 0
    for batch in batches:
        check_stop()
        with autocast(options, device):
            states, projection, labels = predict(model, batch.to(device))
        for some, wanted in _parts(states, labels, projection.out_features):
            with autocast(options, device):
                logits = projection(some)
            total += plain_loss(logits, wanted)
            right += (logits.argmax(-1) == wanted).sum()
        tokens += batch.target_tokens
    return Found(total.item() / max(1, tokens), 100 * right.item() / max(1, tokens))


def _parts(states: Tensor, labels: Tensor, vocabulary: int) -> Iterable[tuple[Tensor, Tensor]]:
    """As many rows at a time as can be projected to a large vocabulary without filling the memory."""
    rows = max(1, LOGITS_AT_A_TIME // vocabulary)
    return zip(states.split(rows), labels.split(rows), strict=True)


def is_better(metric: Metric, value: float, best: float | None) -> bool:
    """Whether a value is the best so far: lower for losses and error rates, higher for the others.

    A tie is no improvement, and neither is a value that is not finite.
    """
    if not math.isfinite(value):
        return False
    if best is None:
        return True
    return value < best if metric in LOWER_IS_BETTER else value > best
