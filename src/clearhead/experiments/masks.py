"""How a score is hidden, and what goes wrong when it is done otherwise (section 3.2.3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from clearhead.experiments.result import Chart, Effort, Result, Table, judge
from clearhead.parts.attention import scaled_dot_product_attention
from clearhead.parts.masks import padding_mask

TITLE = "minus infinity becomes exactly zero, for every head"
CLAIM = (
    "Scores of padding and of the future are filled with minus infinity, which softmax makes exactly 0; one mask of a "
    "head axis of length 1 serves all heads."
)
FORMULA = "weights = softmax(masked_fill(Q Kᵀ / √d_k, ¬mask, -∞)),   mask (b, 1, 1, k) against scores (b, h, q, k)"

FILLS = ("-inf", "-1e9", "-1e4", "-1e4 added", "0/1 added", "forgotten")
"""Ways to mask as they are seen in the wild. `added`: to the score, instead of taking its place."""
TOKENS, PADDED = 12, 5
"""A sentence of 12 places, of which the last 5 are padding."""


def measure(effort: Effort, seed: int) -> Result:
    """The weight of hidden keys, by the way of masking and the size of the scores; and rows with no key at all."""
    scales = [1.0, 100.0, 1e4, 1e6] if effort < Effort.FULL else [10.0**power for power in range(9)]
    hidden = {fill: {scale: hidden_weight(fill, scale) for scale in scales} for fill in FILLS}
    dead = [(fill, *dead_row(fill)) for fill in ("ours", "-inf", "-1e9")]
    half = [(fill, half_precision(fill)) for fill in FILLS[:3]]
    heads = broadcast_difference()

    exact = max(hidden["-inf"].values())
    holds = exact == 0.0 and heads == 0.0 and dead[0][1] == 0.0 and dead[0][2] == "no"
    verdict = (
        f"With minus infinity hidden keys have a weight of exactly {exact:g} at every size of the scores, alike in all "
        f"heads; -1e4 gives way to large scores (at 1e6 {hidden['-1e4'][1e6]:.1%} of the attention is on "
        f"padding, {hidden['-1e4 added'][1e6]:.0%} when it is added), a "
        f"0/1 mask that is added leaves {hidden['0/1 added'][1.0]:.0%} there at ordinary scores and a forgotten mask "
        f"{hidden['forgotten'][1.0]:.0%}; but minus infinity alone turns a row without any key into NaN (here it is "
        "zeros), which is where the textbook's rule needs a second one."
    )
    return Result(
        judge(holds, partly=True),
        verdict,
        [
            Table(
                f"Share of the attention on padding ({PADDED} of {TOKENS} places), by the size of the scores, float32",
                ("masked by", *(f"scores ~ {scale:.0e}" for scale in scales)),
                [(fill, *hidden[fill].values()) for fill in FILLS],
            ),
            Table(
                "A row in which every key is hidden",
                ("masked by", "attention on padding", "NaN in the gradient"),
                dead,
            ),
            Table("In half precision (float16)", ("fill value", "becomes"), half),
        ],
        Chart(
            "Masks by a finite number give way",
            "size of the scores",
            "share of the attention on padding",
            {fill: list(hidden[fill].items()) for fill in FILLS},
            log_x=True,
        ),
        [f"Largest difference between a mask of one head and the same written out for 8 heads: {heads:g}."],
    )


def hide(scores: Tensor, allowed: Tensor, fill: str) -> Tensor:
    """The scores with their hidden places treated in one of the ways of `FILLS`."""
    match fill:
        case "-1e4 added":
            return scores - 1e4 * (~allowed).to(scores.dtype)
        case "0/1 added":
            return scores + allowed.to(scores.dtype)
        case "forgotten":
            return scores
        case _:
            return scores.masked_fill(~allowed, float(fill))


def sentence_mask() -> Tensor:
    """The mask of one sentence with padding: `(1, 1, 1, k)`."""
    ids = torch.ones(1, TOKENS, dtype=torch.int64)
    ids[:, -PADDED:] = 0
    return padding_mask(ids, 0)


def hidden_weight(fill: str, scale: float) -> float:
    """The mean share of the attention that falls on padding when the scores have the deviation `scale`."""
    query, key = torch.randn(1, 8, TOKENS, 16), torch.randn(1, 8, TOKENS, 16)
    mask = sentence_mask()
    if fill == "-inf":
        _, weights = scaled_dot_product_attention(query * scale, key, key, mask)
    else:
        weights = hide(query * scale @ key.transpose(-2, -1) / math.sqrt(16), mask, fill).softmax(-1)
    return float(weights[..., -PADDED:].sum(-1).mean())


def dead_row(fill: str) -> tuple[float, str]:
    """A sentence that is all padding: the attention's sum, and whether its gradient is NaN."""
    query = torch.randn(1, 1, 3, 16, requires_grad=True)
    key = torch.randn(1, 1, TOKENS, 16, requires_grad=True)
    nothing = torch.zeros(1, 1, 1, TOKENS, dtype=torch.bool)
    if fill == "ours":
        output, weights = scaled_dot_product_attention(query, key, key, nothing)
    else:
        weights = hide(query @ key.transpose(-2, -1) / math.sqrt(16), nothing, fill).softmax(-1)
        output = weights @ key
    output.sum().backward()  # type: ignore[no-untyped-call]
    poisoned = any(x.grad is None or bool(x.grad.isnan().any()) for x in (query, key))
    return float(weights.detach().sum(-1).mean()), "yes" if poisoned else "no"


def half_precision(fill: str) -> str:
    """What filling float16 scores with a number gives: a value, or an error."""
    try:
        filled = torch.zeros(1, dtype=torch.float16).masked_fill(torch.tensor([True]), float(fill))
    except RuntimeError as error:
        return f"an error: {str(error).splitlines()[0]}"
    return f"{float(filled):g}"


def broadcast_difference() -> float:
    """One mask for all heads against the same mask written out for each."""
    query, key = torch.randn(2, 8, TOKENS, 16), torch.randn(2, 8, TOKENS, 16)
    mask = sentence_mask()
    one, _ = scaled_dot_product_attention(query, key, key, mask)
    each, _ = scaled_dot_product_attention(query, key, key, mask.expand(2, 8, TOKENS, TOKENS))
    return float((one - each).abs().max())
