"""Which source token each target token comes from, as far as cross-attention tells.

Attention is no proof of influence. But the mean over all heads of all layers is a fair word aligner: where the right
answer is known, it is right about as often as the best single head, which nobody knows elsewhere, and more often than
hiding source tokens one by one and looking whose absence hurts most (docs/inspecting.md has the figures).
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def align(cross: Float[Tensor, "l h t s"]) -> list[int]:
    """For each target token the place of the source token that the step which wrote it looked at most.

    The source's end token, where many heads park their attention, is no candidate; the target's end token comes from
    it, whatever the weights are.
    """
    mean = cross.mean((0, 1))
    end = mean.size(1) - 1
    return [*mean[:-1, :end].argmax(-1).tolist(), end] if end else [0] * mean.size(0)
