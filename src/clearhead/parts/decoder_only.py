"""The decoder without a source (GPT, Radford et al., 2018): what is left of figure 1's right side is its left side with
a causal mask. So a layer is an `EncoderLayer` whose attention looks back only; and it can be stepped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.parts.attention import Mask
from clearhead.parts.cache import DecoderCache, LayerCache, Rows
from clearhead.parts.grouped_attention import GroupedQueryAttention, make_causal_attention
from clearhead.parts.layers import EncoderLayer, make_final_norm
from clearhead.parts.positions import Rotation


class DecoderOnlyLayer(EncoderLayer):
    """Masked self-attention and feed-forward, each with Add & Norm."""

    self_attention: GroupedQueryAttention

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, attention=make_causal_attention(config))

    def forward(
        self, x: Float[Tensor, "b t m"], mask: Mask = None, *, rotation: Rotation | None = None
    ) -> Float[Tensor, "b t m"]:
        """All positions at once. Each looks at itself and those before, where `mask` allows it too."""
        x = self.add_and_norm_1(x, lambda x: self.self_attention(x, mask, rotation=rotation))
        return self.add_and_norm_2(x, self.feed_forward)

    def step(
        self, x: Float[Tensor, "r q m"], cache: LayerCache, rows: Rows, mask: Mask, rotation: Rotation | None
    ) -> Float[Tensor, "r q m"]:
        """The same for the next `q` positions of every open hypothesis, the earlier ones being in the cache."""
        x = self.add_and_norm_1(x, lambda x: self.self_attention.look_back(x, cache.past, rows, mask, rotation))
        return self.add_and_norm_2(x, self.feed_forward)


@dataclass
class TextCache(DecoderCache):
    """The cache of a model without a source, for texts that may begin with prompts of different lengths."""

    def forget_padding(self, lengths: Int[Tensor, " b"]) -> None:
        """Only the first `lengths` entries of each sentence were text."""
        if int(lengths.min()) < self.length:
            self.ragged = True
            self.past = self.past & (torch.arange(self.length, device=lengths.device) < lengths[:, None])[:, None]

    def fan_out(self, beams: int) -> None:
        """From here on each sentence has `beams` hypotheses, which share what is behind them."""
        self.past = self.past.expand(-1, beams, -1)
        self.rows = Rows(torch.ones(self.past.shape[:2], dtype=torch.bool, device=self.past.device))


class DecoderOnly(nn.Module):
    """The stack of those layers."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderOnlyLayer(config) for _ in range(config.decoder_layers))
        self.norm = make_final_norm(config)

    def forward(
        self, x: Float[Tensor, "b t m"], mask: Mask = None, *, rotation: Rotation | None = None
    ) -> Float[Tensor, "b t m"]:
        """Embedded text in, states that predict the next token out. With right padding no mask is needed."""
        for layer in self.layers:
            x = layer(x, mask, rotation=rotation)
        return self.norm(x)

    def step(
        self, x: Float[Tensor, "r q m"], cache: TextCache, rotation: Rotation | None = None
    ) -> Float[Tensor, "r q m"]:
        """The same for the next `q` positions, with what `cache` holds of the earlier ones."""
        mask = cache.advance(x.size(1))
        for layer, layer_cache in zip(cast("list[DecoderOnlyLayer]", self.layers), cache.layers, strict=True):
            x = layer.step(x, layer_cache, cache.rows, mask, rotation)
        return self.norm(x)

    def start_cache(self, sentences: int, *, capacity: int) -> TextCache:
        """The cache of a batch before its first step; there is room for `capacity` positions at first."""
        layers = []
        for layer in cast("list[DecoderOnlyLayer]", self.layers):
            past = layer.self_attention.start_cache(sentences, capacity)
            layers.append(LayerCache(past, past.keys[:, :, :0], past.values[:, :, :0]))  # and no source
        everyone = torch.ones(sentences, 1, dtype=torch.bool, device=layers[0].past.keys.device)
        return TextCache(layers, None, Rows(everyone), everyone[:, :, None][:, :, :0])
