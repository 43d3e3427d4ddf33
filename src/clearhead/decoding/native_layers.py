"""Layers that are run in one native call: encoder layers over whole sentences, decoder layers for a step.

What it computes is what their own class computes, which takes its place wherever the kernels can't be had, or somebody
looks on: at attention weights, or by a hook.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import kernels
from clearhead.config import ModelConfig
from clearhead.decoding.packed_linear import PackedLinear, State, state_of
from clearhead.parts.attention import Mask, MultiHeadAttention
from clearhead.parts.cache import LayerCache, Rows
from clearhead.parts.decoder_only import DecoderOnlyLayer
from clearhead.parts.feed_forward import GatedFeedForward, PositionwiseFeedForward
from clearhead.parts.grouped_attention import GroupedQueryAttention
from clearhead.parts.layers import AddAndNorm, DecoderLayer, EncoderLayer
from clearhead.parts.masks import as_boolean
from clearhead.parts.normalization import LayerNorm, RMSNorm
from clearhead.parts.positions import Rotation

ATTENTIONS = (MultiHeadAttention, GroupedQueryAttention)
NETWORKS = (PositionwiseFeedForward, GatedFeedForward)
NORMS = (LayerNorm, RMSNorm)
LONGEST = 256
"""Positions that an encoder layer reads natively; beyond, torch's fused kernel is faster (docs/experiments.md)."""


def run_natively(model: nn.Module) -> None:
    """Put native layers in the place of those layers of a model whose matrices are all packed."""
    for name, layer in list(model.named_modules()):
        native = NATIVE.get(type(layer))
        if native is not None and is_known(layer):
            model.set_submodule(name, native(layer, cast("ModelConfig", model.config)))


def is_known(layer: nn.Module) -> bool:
    """Whether the layer is made of the parts that the kernels know, and of packed matrices."""
    parts = [part for part in layer.children() if not isinstance(part, AddAndNorm)]
    norms = [part.norm for part in layer.children() if isinstance(part, AddAndNorm)]
    linears = [part for part in layer.modules() if isinstance(part, nn.Linear)]
    return (
        all(type(part) in (*ATTENTIONS, *NETWORKS) for part in parts)
        and all(type(norm) in NORMS for norm in norms)
        and all(isinstance(linear, PackedLinear) for linear in linears)
    )


class NativeCall:
    """The native run of one layer, and whether it may take place."""

    def __init__(self, layer: nn.Module, config: ModelConfig) -> None:
        self.config = config
        self.packed: list[State] = []
        self.refresh(layer)

    def refresh(self, layer: nn.Module) -> None:
        """Take over what the layer's parts and weights are now."""
        self.modules, self.parameters = list(layer.modules()), list(layer.parameters())
        state = [state_of(each) for each in self.parameters]
        if state == self.packed:
            return
        self.packed = state
        self.native: kernels.NativeLayer | None = None
        self.attentions = [each for each in self.modules if isinstance(each, ATTENTIONS)]
        if not is_known(layer):  # any more
            return
        linears = named_linears(self.attentions, layer.feed_forward)
        packed = {name: linear.latest_panels() for name, linear in linears.items()}
        panels = {name: each for name, each in packed.items() if each is not None}
        if len(panels) < len(packed):  # these were packed on another machine
            return
        config = self.config
        norms: list[Any] = [each.norm for each in self.modules if isinstance(each, AddAndNorm)]
        self.native = kernels.NativeLayer(
            panels,
            [(norm.gamma, getattr(norm, "beta", None), norm.epsilon) for norm in norms],
            heads=(config.n_heads, config.key_value_heads, config.d_model // config.n_heads),
            activation="silu" if config.feed_forward == "swiglu" else config.feed_forward,
            pre_norm=config.norm_position == "pre",
        )

    def ready(self, x: Tensor) -> kernels.NativeLayer | None:
        """The kernels' layer, if it can take `x` and nobody would miss anything."""
        if self.native is None or not kernels.take(x, self.parameters[0]):
            return None
        if torch.is_grad_enabled() and any(each.requires_grad for each in self.parameters):
            return None
        for module in self.modules:
            if module.training or module._forward_hooks or module._forward_pre_hooks:
                return None
        if any(attention.attention.recorder is not None for attention in self.attentions):
            return None
        return self.native


def named_linears(attentions: list[Any], network: Any) -> dict[str, PackedLinear]:
    """A layer's matrices, by the kernels' names for them."""
    own, *cross = attentions
    found = {"query": own.w_q, "key": own.w_k, "value": own.w_v, "self_output": own.w_o}
    for attention in cross:
        found |= {"cross_query": attention.w_q, "cross_output": attention.w_o}
    found |= {"inner": network.w_1, "outer": network.w_2}
    return found | {"gate": network.w_3} if isinstance(network, GatedFeedForward) else found


class _Native(nn.Module):
    """A layer of the same parts as another."""

    def __init__(self, layer: nn.Module, config: ModelConfig) -> None:
        nn.Module.__init__(self)
        self.training = layer.training
        for name, part in layer.named_children():
            self.add_module(name, part)
        self.config = config
        self.native = NativeCall(self, config)

    def __getstate__(self) -> dict[str, Any]:
        """What is native holds addresses: a copy makes its own."""
        return {name: value for name, value in self.__dict__.items() if name != "native"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.native = NativeCall(self, self.config)


class NativeEncoderLayer(_Native, EncoderLayer):
    """An `EncoderLayer` that runs natively."""

    def forward(self, x: Float[Tensor, "b s m"], mask: Mask = None) -> Float[Tensor, "b s m"]:
        """Every position looks at all that `mask` allows."""
        self.native.refresh(self)
        native = self.native.ready(x) if x.size(1) <= LONGEST and is_of_sentences(mask) else None
        return super().forward(x, mask) if native is None else native.read(x, as_boolean(mask))


class NativeDecoderLayer(_Native, DecoderLayer):
    """A `DecoderLayer` with a native step."""

    def step(
        self, x: Float[Tensor, "r q m"], cache: LayerCache, rows: Rows, past_mask: Mask, memory_mask: Mask
    ) -> Float[Tensor, "r q m"]:
        """The next position of every open hypothesis, the earlier ones being in the cache."""
        if not cache.past.length:  # a while, and nobody changes a model between two steps
            self.native.refresh(self)
        native = self.native.ready(x) if x.size(1) == 1 else None
        if native is None:
            return super().step(x, cache, rows, past_mask, memory_mask)
        beams = rows.grid[1]
        past = (*cache.past.reserve(beams), as_boolean(past_mask))
        memory = (cache.memory_key, cache.memory_value, as_boolean(memory_mask))
        return native.step(x[:, 0], past, memory, places=rows.places, beams=beams)[:, None]


class NativeDecoderOnlyLayer(_Native, DecoderOnlyLayer):
    """A `DecoderOnlyLayer` with a native step."""

    def step(
        self, x: Float[Tensor, "r q m"], cache: LayerCache, rows: Rows, mask: Mask, rotation: Rotation | None
    ) -> Float[Tensor, "r q m"]:
        """The next position of every open hypothesis, the earlier ones being in the cache."""
        if not cache.past.length:  # a while, and nobody changes a model between two steps
            self.native.refresh(self)
        native = self.native.ready(x) if x.size(1) == 1 else None
        if native is None:
            return super().step(x, cache, rows, mask, rotation)
        beams = rows.grid[1]
        past = (*cache.past.reserve(beams), as_boolean(mask))
        return native.step(x[:, 0], past, past, places=rows.places, beams=beams, rotation=rotation)[:, None]


def is_of_sentences(mask: Mask) -> bool:
    """Whether all positions of a sentence see the same ones."""
    return mask is None or (mask.dim() == 4 and mask.shape[1:3] == (1, 1))


NATIVE: dict[type, type[_Native]] = {
    EncoderLayer: NativeEncoderLayer, DecoderLayer: NativeDecoderLayer, DecoderOnlyLayer: NativeDecoderOnlyLayer,
}  # fmt: skip
