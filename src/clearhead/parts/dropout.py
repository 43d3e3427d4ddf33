"""Dropout (section 5.4) with few random bits."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 256
"""On a CPU the probability is a multiple of 1/256."""


class Dropout(nn.Module):
    """`x * keep / (1 - p)`, each element of `keep` being 0 with probability `p` and else 1; nothing outside training.

    Torch draws a floating-point number for every element, one after the other: on a CPU that takes longer than many a
    matrix product. Eight random bits are enough, if `p` is rounded to a multiple of 1/256 (0.1 becomes 26/256 =
    0.1016); the factor is that of the rounded `p`, so the expectation is exact. A third of the time
    (docs/experiments.md). On a GPU torch's own kernel runs.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = float(p)

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of a tensor of any shape."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        return _DropBytes.apply(x, round(self.p * LEVELS))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """For `print(model)`."""
        return f"p={self.p}"


class _DropBytes(torch.autograd.Function):
    """An element is dropped where its random byte is below `threshold`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int) -> Tensor:
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
        words.random_(torch.iinfo(torch.int64).min, None)
        random_bytes = words.view(torch.uint8)[: x.numel()].view(x.shape)
        keep = random_bytes >= threshold if threshold < LEVELS else torch.zeros_like(x, dtype=torch.bool)
        ctx.save_for_backward(keep)
        ctx.scale = LEVELS / max(1, LEVELS - threshold)
        return _keep(x, keep, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return _keep(gradients[0], keep, ctx.scale), None


def _keep(x: Tensor, keep: Tensor, scale: float) -> Tensor:
    return keep.to(x.dtype).mul_(scale).mul_(x)
