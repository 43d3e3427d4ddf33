"""Decoder layers that take a step in one native call.

What it computes is what the step of their own class computes, which takes its place wherever the kernels can't be had,
or somebody looks on: at attention weights, or by a hook.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from clearhead import kernels
from clearhead.config import ModelConfig
from clearhead.decoding.packed_linear import PackedLinear
from clearhead.parts.attention import Mask, MultiHeadAttention
from clearhead.parts.cache import LayerCache, Rows
from clearhead.parts.decoder_only import DecoderOnlyLayer
from clearhead.parts.feed_forward import GatedFeedForward, PositionwiseFeedForward
from clearhead.parts.grouped_attention import GroupedQueryAttention
from clearhead.parts.layers import AddAndNorm, DecoderLayer
from clearhead.parts.masks import as_boolean
from clearhead.parts.normalization import LayerNorm, RMSNorm
from clearhead.parts.positions import Rotation

ATTENTIONS = (MultiHeadAttention, GroupedQueryAttention)
NETWORKS = (PositionwiseFeedForward, GatedFeedForward)
NORMS = (LayerNorm, RMSNorm)


def step_natively(model: nn.Module) -> None:
    """Put native layers in the place of those decoder layers of a model whose matrices are all packed."""
    natives: dict[type, type[NativeDecoderLayer | NativeDecoderOnlyLayer]] = {
        DecoderLayer: NativeDecoderLayer, DecoderOnlyLayer: NativeDecoderOnlyLayer,
    }  # fmt: skip
    for name, layer in list(model.named_modules()):
        if type(layer) in natives and can_step(layer):
            model.set_submodule(name, natives[type(layer)](layer, model.config))


def can_step(layer: nn.Module) -> bool:
    """Whether the layer is made of the parts that the kernels know, and of packed matrices."""
    parts = [part for part in layer.children() if not isinstance(part, AddAndNorm)]
    norms = [part.norm for part in layer.children() if isinstance(part, AddAndNorm)]
    linears = [part for part in layer.modules() if isinstance(part, nn.Linear)]
    return (
        all(type(part) in (*ATTENTIONS, *NETWORKS) for part in parts)
        and all(type(norm) in NORMS for norm in norms)
        and all(isinstance(linear, PackedLinear) for linear in linears)
    )


class NativeStep:
    """The step of one layer, and whether it may be taken."""

    def __init__(self, layer: nn.Module, config: ModelConfig) -> None:
        self.config = config
        self.modules = list(layer.modules())
        self.attentions = [each for each in self.modules if isinstance(each, ATTENTIONS)]
        self.norms = [each.norm for each in self.modules if isinstance(each, AddAndNorm)]
        self.linears = named_linears(self.attentions, layer.feed_forward)
        self.parameters = list(layer.parameters())
        self.pack()

    def pack(self) -> None:
        """Take over what the weights are now."""
        self.packed = [each._version for each in self.parameters]
        panels = {name: linear.latest_panels() for name, linear in self.linears.items()}
        self.native: kernels.NativeLayer | None = None
        if None in panels.values():  # packed on another machine
            return
        config = self.config
        self.native = kernels.NativeLayer(
            panels,
            [(norm.gamma, getattr(norm, "beta", None), norm.epsilon) for norm in self.norms],
            heads=(config.n_heads, config.key_value_heads, config.d_model // config.n_heads),
            activation="silu" if config.feed_forward == "swiglu" else config.feed_forward,
            pre_norm=config.norm_position == "pre",
        )

    def ready(self, x: Float[Tensor, "r q m"]) -> kernels.NativeLayer | None:
        """The kernels' layer, if it can take this step and nobody would miss anything."""
        if x.size(1) != 1 or not kernels.take(x, self.parameters[0]):
            return None
        for module in self.modules:
            if module.training or module._forward_hooks or module._forward_pre_hooks:
                return None
        if any(attention.attention.recorder is not None for attention in self.attentions):
            return None
        if self.packed != [each._version for each in self.parameters]:
            self.pack()
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
        self.native = NativeStep(self, config)

    def __getstate__(self) -> dict[str, Any]:
        """What is native holds addresses: a copy makes its own."""
        return {name: value for name, value in self.__dict__.items() if name != "native"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.native = NativeStep(self, self.config)


class NativeDecoderLayer(_Native, DecoderLayer):
    """A `DecoderLayer` with a native step."""

    def step(
        self, x: Float[Tensor, "r q m"], cache: LayerCache, rows: Rows, past_mask: Mask, memory_mask: Mask
    ) -> Float[Tensor, "r q m"]:
        """The next position of every open hypothesis, the earlier ones being in the cache."""
        native = self.native.ready(x)
        if native is None or not kernels.can_attend(cache.memory_key, cache.memory_value):
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
        native = self.native.ready(x)
        if native is None:
            return super().step(x, cache, rows, mask, rotation)
        beams = rows.grid[1]
        past = (*cache.past.reserve(beams), as_boolean(mask))
        return native.step(x[:, 0], past, past, places=rows.places, beams=beams, rotation=rotation)[:, None]
