"""Mistakes with masks and with the softmax."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor.mistakes.planted import planted
from clearhead.doctor.mistakes.textbook import PAD, Attention, Layer, Textbook, patient
from clearhead.doctor.patient import Patient


def with_attention(attention: type[Attention]) -> Patient:
    """The textbook's model with another attention."""
    layer = type("Layer", (Layer,), {"attention": attention})
    return patient(type("Textbook", (Textbook,), {"layer": layer}))


@planted("causality", "M7, M9: the flag for causality is ignored without a mask")
def no_causal_mask() -> Patient:
    """The decoder's self-attention has no mask."""

    class Model(Textbook):
        def target_mask(self, ids: Tensor) -> Tensor | None:
            return None

    return patient(Model)


@planted("causality", "a triangle from the wrong diagonal")
def causal_mask_one_off() -> Patient:
    """Each token sees the next one: the triangle to hide begins at diagonal 2."""

    class Model(Textbook):
        def target_mask(self, ids: Tensor) -> Tensor | None:
            return torch.triu(torch.ones(1, 1, ids.size(1), ids.size(1)), diagonal=2) == 0

    return patient(Model)


@planted("causality", "heads split by view alone")
def heads_split_by_view() -> Patient:
    """Heads are split by `view(b, h, t, d)` without a transposition: positions are mixed."""

    class Wrong(Attention):
        def split(self, x: Tensor) -> Tensor:
            return x.reshape(x.size(0), self.heads, x.size(1), -1)

    return with_attention(Wrong)


@planted("causality", "finite mask values are outgrown by large scores")
def weak_mask_value() -> Patient:
    """Masked scores are set to -100, which large scores outgrow."""

    class Wrong(Attention):
        def weigh(self, scores: Tensor, mask: Tensor | None) -> Tensor:
            return (scores if mask is None else scores.masked_fill(~mask, -100.0)).softmax(-1)

    return with_attention(Wrong)


@planted("masks", "M4: a book's code let tokens see only the future")
def causal_mask_upside_down() -> Patient:
    """`triu` where `tril` was meant: a token sees only itself and later ones."""

    class Model(Textbook):
        def target_mask(self, ids: Tensor) -> Tensor | None:
            return torch.ones(1, 1, ids.size(1), ids.size(1), dtype=torch.bool).triu()

    return patient(Model)


@planted("masks", "M4: True means attend in one of torch's functions and ignore in another")
def padding_mask_upside_down() -> Patient:
    """The padding mask is True at padding, as nn.MultiheadAttention wants it, and goes to an attention that attends."""

    class Model(Textbook):
        def source_mask(self, source: Tensor) -> Tensor | None:
            return (source == PAD)[:, None, None, :]

    return patient(Model)


@planted("masks", "M5: a 0/1 float mask is added to the scores")
def mask_added_as_numbers() -> Patient:
    """The tokenizer's 0/1 attention mask goes to torch's attention as floats, which adds it."""

    class Wrong(Attention):
        def forward(
            self, x: Tensor, memory: Tensor, mask: Tensor | None, past: dict[str, Tensor] | None = None
        ) -> Tensor:
            query, key, value = self.split(self.w_q(x)), self.split(self.w_k(memory)), self.split(self.w_v(memory))
            if past is not None:
                key, value = self.remember(past, key, value)
            floats = None if mask is None else mask.to(query.dtype)
            return self.w_o(self.join(F.scaled_dot_product_attention(query, key, value, attn_mask=floats)))

    return with_attention(Wrong)


@planted("masks", "scores multiplied by a mask keep a weight of e^0")
def mask_multiplied() -> Patient:
    """Scores are multiplied by the 0/1 mask instead of being filled with minus infinity."""

    class Wrong(Attention):
        def weigh(self, scores: Tensor, mask: Tensor | None) -> Tensor:
            return (scores if mask is None else scores * mask).softmax(-1)

    return with_attention(Wrong)


@planted("masks", "1e-9 typed for -1e9")
def mask_of_1e_minus_9() -> Patient:
    """`masked_fill(mask == 0, 1e-9)`: a sign is lost."""

    class Wrong(Attention):
        def weigh(self, scores: Tensor, mask: Tensor | None) -> Tensor:
            return (scores if mask is None else scores.masked_fill(~mask, 1e-9)).softmax(-1)

    return with_attention(Wrong)


@planted("padding", "no padding mask in the encoder")
def no_padding_mask() -> Patient:
    """Nobody hides the source's padding."""

    class Model(Textbook):
        def source_mask(self, source: Tensor) -> Tensor | None:
            return None

    return patient(Model)


@planted("padding", "memory_key_padding_mask forgotten")
def no_padding_mask_in_cross_attention() -> Patient:
    """The encoder hides padding, but cross-attention sees it."""

    class Model(Textbook):
        def memory_mask(self, source: Tensor) -> Tensor | None:
            return None

    return patient(Model)


@planted("empty-rows", "M1, M2: a row with every key masked gives NaN")
def minus_infinity_everywhere() -> Patient:
    """Masked scores are minus infinity, and an empty sentence has no others."""

    class Wrong(Attention):
        def weigh(self, scores: Tensor, mask: Tensor | None) -> Tensor:
            return (scores if mask is None else scores.masked_fill(~mask, -math.inf)).softmax(-1)

    return with_attention(Wrong)


@planted("precision", "-1e9 is beyond float16")
def mask_value_beyond_half() -> Patient:
    """Masked scores are set to -1e9, which float16 can't hold."""

    class Wrong(Attention):
        def weigh(self, scores: Tensor, mask: Tensor | None) -> Tensor:
            return (scores if mask is None else scores.masked_fill(~mask, -1e9)).softmax(-1)

    return with_attention(Wrong)


@planted("scores", "no division by sqrt(d_k)")
def not_scaled() -> Patient:
    """Scores are not divided by the root of the head's width."""

    class Wrong(Attention):
        def score(self, query: Tensor, key: Tensor) -> Tensor:
            return query @ key.transpose(-2, -1)

    return with_attention(Wrong)


@planted("scores", "scaled by hand before a function that scales")
def scaled_twice() -> Patient:
    """The queries are divided by the root of d, and torch's attention does it again."""

    class Wrong(Attention):
        def forward(
            self, x: Tensor, memory: Tensor, mask: Tensor | None, past: dict[str, Tensor] | None = None
        ) -> Tensor:
            query, key, value = self.split(self.w_q(x)), self.split(self.w_k(memory)), self.split(self.w_v(memory))
            if past is not None:
                key, value = self.remember(past, key, value)
            bias = None
            if mask is not None:
                bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
            found = F.scaled_dot_product_attention(query / math.sqrt(query.size(-1)), key, value, attn_mask=bias)
            return self.w_o(self.join(found))

    return with_attention(Wrong)


@planted("scores", "sqrt(d_model) for sqrt(d_k)")
def scaled_by_model_width() -> Patient:
    """Scores are divided by the root of d_model, not of a head's width."""

    class Wrong(Attention):
        def score(self, query: Tensor, key: Tensor) -> Tensor:
            return query @ key.transpose(-2, -1) / math.sqrt(self.w_q.out_features)

    return with_attention(Wrong)


@planted("scores", "softmax without dim, or with the wrong one")
def softmax_over_queries() -> Patient:
    """The softmax runs over the queries instead of the keys."""

    class Wrong(Attention):
        def weigh(self, scores: Tensor, mask: Tensor | None) -> Tensor:
            if mask is not None:
                scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
            return nn.Softmax(dim=-2)(scores)

    return with_attention(Wrong)
