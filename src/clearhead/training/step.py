"""The gradient of one update: the mean loss over all its target tokens, however they are cut into batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from clearhead.errors import RunError
from clearhead.recipe import TrainingSection
from clearhead.training.distribution import sum_over_processes
from clearhead.training.loss import training_loss
from clearhead.training.predictions import Predictions, predict_target

Predict = Callable[[Any, Any], Predictions]
"""From a model and a batch, both on one device, to what is to be right; by default the target of pairs."""


class GradientSums(NamedTuple):
    """What one gradient was made of."""

    loss: float
    """Mean smoothed loss over its target tokens, in nats."""
    plain: float
    """Mean negative log-likelihood."""
    norm: float
    """Norm of the gradient, before clipping."""
    tokens: int
    """Target tokens, over all processes."""

    def is_finite(self) -> bool:
        """Whether the weights may be updated with it."""
        return math.isfinite(self.loss) and math.isfinite(self.norm)


def compute_gradient(
    model: nn.Module,
    batches: Sequence[Any],
    options: TrainingSection,
    device: torch.device,
    predict: Predict = predict_target,
) -> GradientSums:
    """Leave in `.grad` the gradient of the loss summed over all batches and divided by all their target tokens.

    That is the gradient of one large batch, whatever the lengths of the small ones. With several processes the number
    of tokens is that of all of them, so the sum of their gradients is the gradient of all batches.
    It is clipped to `clip_norm`. Raises `RunError` when memory runs out.
    """
    tokens = max(1, sum_over_processes(sum(batch.target_tokens for batch in batches), device))
    losses = [add_gradient(model, batch, options, device, divisor=tokens, predict=predict) for batch in batches]
    parameters = [p for p in model.parameters() if p.grad is not None]
    norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
    if options.clip_norm:
        clip_grads_with_norm_(parameters, options.clip_norm, norm)
    # One transfer from the device for all three numbers: each would wait for everything before it.
    loss, plain, total_norm = torch.cat([torch.stack(losses).sum(0), norm.double()[None]]).tolist()
    return GradientSums(loss, plain, total_norm, tokens)


def add_gradient(
    model: nn.Module,
    batch: Any,
    options: TrainingSection,
    device: torch.device,
    *,
    divisor: int,
    predict: Predict = predict_target,
) -> Tensor:
    """Add one batch's part to `.grad`; returns its smoothed and its plain loss, both over `divisor`: `(2,)`."""
    try:
        on_device = batch.to(device)
        with autocast(options, device):
            states, projection, labels = predict(model, on_device)
        loss, plain = training_loss(
            states, projection.weight, labels,
            smoothing=options.label_smoothing, divisor=divisor, bias=projection.bias,
        )  # fmt: skip
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.stack([loss.detach(), plain])
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        raise RunError(
            f"out of memory on {device}, batch of {batch.describe()}: lower training.batch_tokens (now "
            f"{options.batch_tokens}) and raise training.accumulate (now {options.accumulate}) by the same factor: the "
            "updates stay the same"
        ) from None


def autocast(options: TrainingSection, device: torch.device) -> torch.autocast:
    """Matrix products in bfloat16 if the recipe says so; weights, sums and the loss stay in float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=options.precision == "bfloat16")


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)
