"""Encoder and decoder (section 3.1): sublayers, each wrapped in Add & Norm, in layers, in stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.parts.attention import Mask, MultiHeadAttention
from clearhead.parts.cache import DecoderCache, KeyValueCache, LayerCache, Rows
from clearhead.parts.dropout import Dropout
from clearhead.parts.feed_forward import make_feed_forward
from clearhead.parts.normalization import make_norm


class AddAndNorm(nn.Module):
    """A residual connection around a sublayer, and a layer normalisation (section 3.1).

    Post-norm, as published: `LayerNorm(x + Dropout(Sublayer(x)))`.
    Pre-norm, as most use today: `x + Dropout(Sublayer(LayerNorm(x)))`, whose identity path no norm interrupts.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm_position == "pre"
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "b t m"], sublayer: Callable[[Tensor], Tensor]) -> Float[Tensor, "b t m"]:
        """Run the sublayer between its norm and its residual."""
        if self.pre_norm:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


def make_attention(config: ModelConfig) -> MultiHeadAttention:
    """Multi-head attention of the model's shape."""
    return MultiHeadAttention(config.d_model, config.n_heads, dropout=config.attention_dropout_rate)


def make_final_norm(config: ModelConfig) -> nn.Module:
    """Pre-norm leaves a stack's output unnormalised, so one norm closes it; post-norm needs none."""
    return make_norm(config) if config.norm_position == "pre" else nn.Identity()


class EncoderLayer(nn.Module):
    """Self-attention, Add & Norm, feed-forward, Add & Norm (figure 1, left). Either part can be replaced."""

    def __init__(
        self, config: ModelConfig, *, attention: nn.Module | None = None, feed_forward: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.self_attention = make_attention(config) if attention is None else attention
        self.feed_forward = make_feed_forward(config) if feed_forward is None else feed_forward
        self.add_and_norm_1 = AddAndNorm(config)
        self.add_and_norm_2 = AddAndNorm(config)

    def forward(self, x: Float[Tensor, "b s m"], mask: Mask = None) -> Float[Tensor, "b s m"]:
        """Every position looks at all that `mask` allows."""
        x = self.add_and_norm_1(x, lambda x: self.self_attention(x, mask=mask))
        return self.add_and_norm_2(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, feed-forward, each with Add & Norm (figure 1, right)."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        self_attention: MultiHeadAttention | None = None,
        cross_attention: MultiHeadAttention | None = None,
        feed_forward: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.self_attention = make_attention(config) if self_attention is None else self_attention
        self.cross_attention = make_attention(config) if cross_attention is None else cross_attention
        self.feed_forward = make_feed_forward(config) if feed_forward is None else feed_forward
        self.add_and_norm_1 = AddAndNorm(config)
        self.add_and_norm_2 = AddAndNorm(config)
        self.add_and_norm_3 = AddAndNorm(config)

    def forward(
        self, x: Float[Tensor, "b t m"], memory: Float[Tensor, "b s m"], memory_mask: Mask = None
    ) -> Float[Tensor, "b t m"]:
        """All target positions at once. Each looks at itself and those before, then at the source.

        With right padding causality alone hides the padding from every real token.
        """
        x = self.add_and_norm_1(x, lambda x: self.self_attention(x, causal=True))
        x = self.add_and_norm_2(x, lambda x: self.cross_attention(x, memory, memory_mask))
        return self.add_and_norm_3(x, self.feed_forward)

    def step(
        self, x: Float[Tensor, "r q m"], cache: LayerCache, rows: Rows, past_mask: Mask, memory_mask: Mask
    ) -> Float[Tensor, "r q m"]:
        """The same for the next `q` positions of every open hypothesis, the earlier ones being in the cache."""
        x = self.add_and_norm_1(x, lambda x: self.self_attention.look_back(x, cache.past, rows, past_mask))
        x = self.add_and_norm_2(
            x,
            lambda x: self.cross_attention.look_at(x, cache.memory_key, cache.memory_value, rows, memory_mask),
        )
        return self.add_and_norm_3(x, self.feed_forward)

    def start_cache(self, memory: Float[Tensor, "b s m"], capacity: int) -> LayerCache:
        """No past yet, and the source's keys and values, projected once."""
        # Each head's entries side by side, as every step reads them.
        key, value = (each.contiguous() for each in self.cross_attention.keys_and_values(memory))
        return LayerCache(KeyValueCache(key, capacity), key, value)


class Encoder(nn.Module):
    """The stack of encoder layers."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.norm = make_final_norm(config)

    def forward(self, x: Float[Tensor, "b s m"], mask: Mask = None) -> Float[Tensor, "b s m"]:
        """Embedded source in, memory out."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Decoder(nn.Module):
    """The stack of decoder layers."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.norm = make_final_norm(config)

    def forward(
        self, x: Float[Tensor, "b t m"], memory: Float[Tensor, "b s m"], memory_mask: Mask = None
    ) -> Float[Tensor, "b t m"]:
        """Embedded target in, states that predict the next token out."""
        for layer in self.layers:
            x = layer(x, memory, memory_mask)
        return self.norm(x)

    def step(self, x: Float[Tensor, "r q m"], cache: DecoderCache) -> Float[Tensor, "r q m"]:
        """The same for the next `q` positions, with what `cache` holds of the earlier ones."""
        past_mask = cache.advance(x.size(1))
        for layer, layer_cache in zip(cast("list[DecoderLayer]", self.layers), cache.layers, strict=True):
            x = layer.step(x, layer_cache, cache.rows, past_mask, cache.memory_mask)
        return self.norm(x)

    def start_cache(
        self, memory: Float[Tensor, "b s m"], memory_mask: Tensor | None, *, beams: int = 1, capacity: int = 32
    ) -> DecoderCache:
        """The cache of a batch of sentences before its first step; there is room for `capacity` entries at first."""
        layers = [layer.start_cache(memory, capacity) for layer in cast("list[DecoderLayer]", self.layers)]
        everyone = torch.ones(memory.size(0), beams, dtype=torch.bool, device=memory.device)
        return DecoderCache(layers, memory_mask, Rows(everyone), everyone[:, :, None][:, :, :0])
