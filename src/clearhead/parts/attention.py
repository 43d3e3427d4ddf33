"""Attention (section 3.2): the formula a reader reads, the fused kernel that runs, and many heads of it.

Axes: `b` batch, `h` head, `q` query position, `k` key position, `d` width of a head, `m` width of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from clearhead.parts.cache import KeyValueCache, Rows
from clearhead.parts.masks import as_boolean, causal_mask

Mask = Bool[Tensor, "..."] | Integer[Tensor, "..."] | None


def scaled_dot_product_attention(
    query: Float[Tensor, "*b q d"],
    key: Float[Tensor, "*b k d"],
    value: Float[Tensor, "*b k v"],
    mask: Mask = None,
    *,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> tuple[Float[Tensor, "*b q v"], Float[Tensor, "*b q k"]]:
    """Equation 1: `softmax(query @ key.T / sqrt(d)) @ value`; returns the output and the weights.

    Without the division the scores' variance would grow with `d`: each is a sum of `d` products of variance 1. The
    softmax would then be almost one-hot and its gradient almost nothing (section 3.2.1, footnote 4).

    `mask` is `True` where a query may attend, and broadcasts to `(*b, q, k)`; `causal` hides later positions, the
    queries being the last `q` of the `k` positions. The two combine. A query that may attend to nothing gets zeros.
    Dropout falls on the weights; the weights returned are those before it.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    allowed = combine_masks(mask, causal, query, key)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
        # A row of minus infinities has no softmax: let it be anything finite, then zero.
        scores = scores.masked_fill(~allowed.any(-1, keepdim=True), 0.0)
    weights = scores.softmax(-1)
    if allowed is not None:
        weights = weights.masked_fill(~allowed, 0.0)
    return F.dropout(weights, dropout_p, training=dropout_p > 0) @ value, weights


def fused_attention(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b h k d"],
    value: Float[Tensor, "b h k d"],
    mask: Mask = None,
    *,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> Float[Tensor, "b h q d"]:
    """The same output from torch's fused kernels, which never write down the `(q, k)` scores where they needn't."""
    whole = query.size(-2) == key.size(-2)
    if mask is None and (not causal or whole):
        return F.scaled_dot_product_attention(query, key, value, is_causal=causal, dropout_p=dropout_p)
    if mask is None and query.size(-2) == 1:  # the newest position sees every other
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout_p)
    allowed = combine_masks(mask, causal, query, key)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed, dropout_p=dropout_p)


def combine_masks(mask: Mask, causal: bool, query: Tensor, key: Tensor) -> Tensor | None:
    """Where both the mask and causality allow it; `None` when nothing is hidden."""
    allowed = as_boolean(mask)
    if not causal:
        return allowed
    triangle = causal_mask(query.size(-2), key.size(-2), query.device)
    return triangle if allowed is None else allowed & triangle


class ScaledDotProductAttention(nn.Module):
    """Scaled dot-product attention with dropout on its weights (section 3.2.1, equation 1).

    The fused kernel computes the output. While `recorder` is set (see `clearhead.record_attention`) the formula
    computes the weights beside it, so looking never changes what is seen.
    """

    def __init__(self, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.recorder: Callable[[Tensor], None] | None = None

    def forward(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b h k d"],
        value: Float[Tensor, "b h k d"],
        mask: Mask = None,
        *,
        causal: bool = False,
    ) -> Float[Tensor, "b h q d"]:
        """Attend from every query to the keys that `mask` and `causal` allow."""
        self.record(query, key, value, mask, causal=causal)
        return fused_attention(query, key, value, mask, causal=causal, dropout_p=self.rate)

    @property
    def rate(self) -> float:
        """Of the dropout. The kernels know nothing of eval(): outside training it is ours to set to zero."""
        return self.dropout if self.training else 0.0

    def record(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, *, causal: bool = False) -> None:
        """Hand the weights to whoever is looking."""
        if self.recorder is not None:
            with torch.no_grad():
                _, weights = scaled_dot_product_attention(query, key, value, mask, causal=causal)
            self.recorder(weights)


class MultiHeadAttention(nn.Module):
    """Attention in `n_heads` subspaces at once (section 3.2.2).

    `MultiHead(x, memory) = Concat(head_1, …, head_h) W_O` with
    `head_i = Attention(x W_Q_i, memory W_K_i, memory W_V_i)` and `d = d_model / n_heads`, so that all heads together
    cost about as much as one of full width. Self-attention is `memory = x`.
    """

    def __init__(self, d_model: int, n_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)
        self.attention = ScaledDotProductAttention(dropout=dropout)

    def forward(
        self,
        x: Float[Tensor, "b q m"],
        memory: Float[Tensor, "b k m"] | None = None,
        mask: Mask = None,
        *,
        causal: bool = False,
    ) -> Float[Tensor, "b q m"]:
        """Attend from `x` to `memory`, or to `x` itself."""
        key, value = self.keys_and_values(x if memory is None else memory)
        return self.w_o(self.attend(self.w_q(x), key, value, mask, causal=causal))

    def look_back(
        self, x: Float[Tensor, "r q m"], past: KeyValueCache, rows: Rows, mask: Mask
    ) -> Float[Tensor, "r q m"]:
        """Self-attention of the newest positions: each hypothesis to itself and what `mask` says is behind it."""
        key, value = past.append(*(self.split_heads(rows.spread(w(x)).flatten(1, 2)) for w in (self.w_k, self.w_v)))
        return self.look_at(x, key, value, rows, mask)

    def look_at(
        self,
        x: Float[Tensor, "r q m"],
        key: Float[Tensor, "b h k d"],
        value: Float[Tensor, "b h k d"],
        rows: Rows,
        mask: Mask,
    ) -> Float[Tensor, "r q m"]:
        """Attend to keys and values that a sentence's hypotheses share: they stand in line as its queries."""
        found = self.attend(rows.spread(self.w_q(x)).flatten(1, 2), key, value, mask)
        return self.w_o(rows.gather(found.unflatten(1, (-1, x.size(1)))))

    def attend(
        self,
        query: Float[Tensor, "b q m"],
        key: Float[Tensor, "b h k d"],
        value: Float[Tensor, "b h k d"],
        mask: Mask,
        *,
        causal: bool = False,
    ) -> Float[Tensor, "b q m"]:
        """All heads at once, joined."""
        return self.join_heads(self.attention(self.split_heads(query), key, value, mask, causal=causal))

    def keys_and_values(
        self, memory: Float[Tensor, "b k m"]
    ) -> tuple[Float[Tensor, "b h k d"], Float[Tensor, "b h k d"]]:
        """What the heads attend to; decoding projects a sentence's memory once."""
        return self.split_heads(self.w_k(memory)), self.split_heads(self.w_v(memory))

    def split_heads(self, x: Float[Tensor, "b t m"]) -> Float[Tensor, "b h t d"]:
        """Each head sees its own `d = m / h` features."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    @staticmethod
    def join_heads(x: Float[Tensor, "b h t d"]) -> Float[Tensor, "b t m"]:
        """The inverse of `split_heads`: the paper's Concat."""
        return x.transpose(1, 2).flatten(-2)
