"""Why scores are divided by the root of the head's width (section 3.2.1, footnote 4)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from clearhead.experiments.result import Chart, Effort, Result, Table, judge
from clearhead.parts.attention import MultiHeadAttention, scaled_dot_product_attention

TITLE = "dividing by √d_k keeps the softmax soft"
CLAIM = (
    "For a large d_k the products of queries and keys grow, the softmax becomes almost one-hot and its gradient "
    "vanishes; dividing by √d_k keeps the variance of the scores near 1."
)
FORMULA = "Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V,    Var(q · k) = d_k for independent entries of variance 1"

KEYS = 64


class Softness(NamedTuple):
    """How soft the attention over `KEYS` keys is."""

    variance: float
    """Of the scores."""
    entropy: float
    """Of the weights, in nats; at most ln(KEYS). The mean of all rows."""
    gradient: float
    """Frobenius norm of the softmax's Jacobian `diag(w) - w wᵀ`. The median of all rows: a few near ties live on."""


def measure(effort: Effort, seed: int) -> Result:
    """Scores of random vectors, by the width of a head, with and without the division."""
    widths = effort.of([4, 64, 1024], [4, 16, 64, 256, 1024], [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048])
    repeats = effort.of(4, 64, 256)
    found = {width: (random_softness(width, repeats, False), random_softness(width, repeats, True)) for width in widths}
    rows = [(width, *(x for pair in zip(*found[width], strict=True) for x in pair)) for width in widths]
    columns = ("d_k", *(f"{what}, {how}" for what in ("variance", "entropy", "gradient") for how in ("raw", "scaled")))
    trained = [(width, projected_variance(width, False), projected_variance(width, True)) for width in widths[:4]]

    small, large = found[widths[0]], found[widths[-1]]
    holds = 0.8 < large[1].variance < 1.25 and large[0].gradient < 0.1 * large[1].gradient
    verdict = (
        f"At d_k = {widths[-1]:,} the scores have a variance of {large[0].variance:,.0f} without the division and of "
        f"{large[1].variance:.2f} with it, the typical softmax gradient is {large[0].gradient:.1e} against "
        f"{large[1].gradient:.2f}, and at d_k = {widths[0]} it hardly matters ({small[0].gradient:.2f} against "
        f"{small[1].gradient:.2f}). That the variance is 1 supposes independent queries and keys: when both are the "
        f"same projection it is {trained[-1][2]:.1f} at d_k = {trained[-1][0]}."
    )
    return Result(
        judge(holds, partly=True),
        verdict,
        [
            Table(f"Random queries, {KEYS} random keys; the largest entropy is {math.log(KEYS):.2f}", columns, rows),
            Table(
                "Variance of the scaled scores in a new multi-head attention (4 heads, Glorot's weights)",
                ("d_k", "W_Q and W_K drawn apart", "W_Q = W_K"),
                trained,
            ),
        ],
        Chart(
            "Gradient that the softmax lets through",
            "d_k",
            "median norm of the Jacobian",
            {
                "Q Kᵀ": [(width, found[width][0].gradient) for width in widths],
                "Q Kᵀ / √d_k": [(width, found[width][1].gradient) for width in widths],
            },
            log_x=True,
            log_y=True,
        ),
    )


def random_softness(width: int, repeats: int, scaled: bool) -> Softness:
    """Of queries and keys with independent entries of variance 1."""
    query, key = torch.randn(repeats, KEYS, width), torch.randn(repeats, KEYS, width)
    return softness(query, key, scaled)


def softness(query: Tensor, key: Tensor, scaled: bool) -> Softness:
    """Of given queries and keys, `(b, q, d)` and `(b, k, d)`."""
    root = math.sqrt(query.size(-1))
    query = query if scaled else query * root  # the part divides: multiplied before, the product is the raw one
    _, weights = scaled_dot_product_attention(query, key, key)
    scores = query @ key.transpose(-2, -1) / root
    entropy = -weights.xlogy(weights).sum(-1)
    return Softness(float(scores.var()), float(entropy.mean()), float(jacobian_norm(weights).median()))


def jacobian_norm(weights: Tensor) -> Tensor:
    """`‖diag(w) - w wᵀ‖` of each row of weights: how much of a gradient passes the softmax."""
    w = weights.double()
    squares, cubes = w.square().sum(-1), w.pow(3).sum(-1)
    return (squares - 2 * cubes + squares.square()).clamp_min(0).sqrt()


@torch.no_grad()
def projected_variance(width: int, same: bool) -> float:
    """Variance of the scaled scores of a new multi-head attention that reads normalised states."""
    attention = MultiHeadAttention(4 * width, 4)
    for projection in (attention.w_q, attention.w_k):
        torch.nn.init.xavier_uniform_(projection.weight)
        torch.nn.init.zeros_(projection.bias)
    if same:
        attention.w_k = attention.w_q
    x = torch.randn(2, KEYS, 4 * width)
    query, (key, _) = attention.split_heads(attention.w_q(x)), attention.keys_and_values(x)
    return float((query @ key.transpose(-2, -1) / math.sqrt(width)).var())
