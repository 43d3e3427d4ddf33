"""Label-smoothed cross-entropy (section 5.4): the formula, and the same faster.

For one target token `y` with the model's probabilities `p` over `V` tokens and smoothing `e`,

    loss = -(1 - e) log p[y] - e / (V - 2) * (sum of log p[k] over every k but y and padding)

so the right token has the mass `1 - e`, padding exactly none, and each of the `V - 2` others an equal share of `e`.
The loss of an update is the sum over its real target tokens divided by their number, over all its micro-batches and all
processes: a short batch counts for less than a long one, and accumulation changes nothing.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.control_tokens import PAD

CHUNK_ELEMENTS = {"cpu": 2**22, "cuda": 2**26}
"""Logits made at a time: on the CPU so many that they stay in the cache (400 rows of 10,000 tokens), on a GPU so many
that they keep it busy and still don't fill its memory."""


def smoothed_cross_entropy(
    logits: Float[Tensor, "n v"], labels: Int[Tensor, " n"], smoothing: float
) -> Float[Tensor, " n"]:
    """The formula above for each of `n` real target tokens, in nats. `labels` holds no padding."""
    log_p = logits.log_softmax(-1)
    right = log_p.gather(1, labels[:, None]).squeeze(1)
    others = log_p.sum(-1) - right - log_p[:, PAD]
    return -(1 - smoothing) * right - smoothing / (logits.size(1) - 2) * others


def training_loss(
    states: Float[Tensor, "n m"],
    weight: Float[Tensor, "v m"],
    labels: Int[Tensor, " n"],
    *,
    smoothing: float,
    divisor: int,
    bias: Float[Tensor, " v"] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The sum of `smoothed_cross_entropy` over `divisor`, and the plain negative log-likelihood's (without gradient).

    The logits are `states @ weight.T`, the output projection, and its bias if it has one. They never exist as a whole,
    see `_ProjectedLoss`. `divisor` is the update's number of target tokens.
    """
    loss, plain = _ProjectedLoss.apply(states, weight, bias, labels, smoothing, divisor)
    return loss, plain


def plain_loss(logits: Float[Tensor, "n v"], labels: Int[Tensor, " n"]) -> Float[Tensor, ""]:
    """The sum of the negative log-likelihoods `-log p[y]` in nats, in float64; for validation."""
    return F.cross_entropy(logits.float(), labels, reduction="none").double().sum()


class _ProjectedLoss(torch.autograd.Function):
    """Projection, loss and all their gradients in one go, a chunk of rows at a time.

    With `q` the smoothed target distribution, the gradient by the logits is `p - q`: known as soon as the loss is. So
    while a chunk's logits are in the cache they become their own gradient, and that becomes the gradients of the states
    and of the projection; the backward pass has nothing left to do.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, divisor: int
    ) -> tuple[Tensor, Tensor]:
        rows = max(1, CHUNK_ELEMENTS.get(states.device.type, 2**26) // weight.size(0))
        states_gradient, weight_gradient = torch.empty_like(states), torch.zeros_like(weight)
        bias_gradient = None if bias is None else torch.zeros_like(bias)
        weight = weight.to(states.dtype)  # under autocast the states are in half precision
        sums = []
        for start in range(0, len(states), rows):
            chunk = states[start : start + rows]
            logits = chunk @ weight.T if bias is None else torch.addmm(bias.to(chunk.dtype), chunk, weight.T)
            sums.append(_loss_and_gradient_(logits, labels[start : start + rows], smoothing, divisor))
            torch.mm(logits, weight, out=states_gradient[start : start + rows])
            if logits.dtype == weight_gradient.dtype:
                weight_gradient.addmm_(logits.T, chunk)
            else:
                weight_gradient += logits.T @ chunk
            if bias_gradient is not None:
                bias_gradient += logits.sum(0)
        nothing = torch.zeros(2, dtype=torch.float64, device=states.device)  # a batch may hold nothing to predict
        loss, plain = torch.stack(sums or [nothing]).sum(0).div(divisor).unbind()
        ctx.mark_non_differentiable(plain)
        ctx.gradients = states_gradient, weight_gradient, bias_gradient
        return loss, plain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        # The loss is what backward() is called on, so its own gradient is 1; asking costs nothing on the CPU.
        of_loss, (of_states, of_weight, of_bias) = gradients[0], ctx.gradients
        if of_loss.device.type != "cpu" or of_loss != 1:
            of_states, of_weight = of_states * of_loss.to(of_states.dtype), of_weight * of_loss.to(of_weight.dtype)
            of_bias = None if of_bias is None else of_bias * of_loss.to(of_bias.dtype)
        return of_states, of_weight, of_bias, None, None, None


def _loss_and_gradient_(logits: Tensor, labels: Tensor, smoothing: float, divisor: int) -> Tensor:
    """The sums of smoothed and plain loss over a chunk; overwrites the chunk's logits with the gradient."""
    vocabulary, label = logits.size(1), labels[:, None]
    share = smoothing / (vocabulary - 2)
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    p = x.softmax(-1)

    # log(sum(exp(x))), from the largest probability: it is at least 1 / vocabulary, so its logarithm is always finite.
    log_total = x.amax(-1) - p.amax(-1).log()
    right = x.gather(1, label).squeeze(1)
    others = x.sum(-1) - right - x[:, PAD]
    plain = log_total - right
    smoothed = (1 - smoothing) * plain + share * ((vocabulary - 2) * log_total - others)

    p -= share  # p - q, with q = share everywhere, then mended at padding and at the right token
    p[:, PAD] += share
    p.scatter_add_(1, label, torch.full_like(label, share - (1 - smoothing), dtype=p.dtype))
    logits.copy_(p.div_(divisor))
    return torch.stack([smoothed.sum(dtype=torch.float64), plain.sum(dtype=torch.float64)])
