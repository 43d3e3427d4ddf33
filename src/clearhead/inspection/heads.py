"""Heads by name, and models with some of their heads switched off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple, get_args

import torch

from clearhead.errors import ConfigError
from clearhead.models.transformer import Transformer
from clearhead.parts.attention import MultiHeadAttention

Kind = Literal["encoder", "decoder", "cross"]
"""The encoder's self-attention, the decoder's, and that from the decoder to the encoder's output."""
KINDS: tuple[Kind, ...] = get_args(Kind)


class Head(NamedTuple):
    """One head; written `cross.1.3`: kind, layer and head, counted from 0 as in the modules' paths."""

    kind: Kind
    layer: int
    head: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.layer}.{self.head}"


def attention_path(kind: Kind, layer: int) -> str:
    """The path of a layer's multi-head attention in a `Transformer`."""
    stack = "encoder" if kind == "encoder" else "decoder"
    return f"{stack}.layers.{layer}.{'cross' if kind == 'cross' else 'self'}_attention"


def all_heads(model: Transformer) -> list[Head]:
    """Every head of a model, in the order in which they are computed first: encoder, decoder, cross."""
    layers = {kind: model.config.encoder_layers if kind == "encoder" else model.config.decoder_layers for kind in KINDS}
    return [Head(kind, n, head) for kind in KINDS for n in range(layers[kind]) for head in range(model.config.n_heads)]


def parse_head(name: str, model: Transformer) -> Head:
    """The head of a name such as `cross.1.3`. Raises `ConfigError` for one that the model doesn't have."""
    known = {str(head): head for head in all_heads(model)}
    if name not in known:
        config = model.config
        raise ConfigError(
            f"there is no head {name!r}: a head is KIND.LAYER.HEAD, as in cross.0.1. KIND is {', '.join(KINDS)}; this "
            f"model has {config.encoder_layers} encoder and {config.decoder_layers} decoder layers of {config.n_heads} "
            "heads, counted from 0"
        )
    return known[name]


@contextmanager
def heads_off(model: Transformer, heads: Sequence[Head]) -> Iterator[None]:
    """Switch heads off while the context lasts: what they find counts as zeros (Michel et al., 2019, section 2.3).

    The columns of `w_o` that take a head's output are zero meanwhile, and what they were afterwards, to the bit. So it
    works for every way to run a model: with a cache, compiled, recorded. Don't train or save the model meanwhile.
    """
    columns = []
    for kind, layer, head in dict.fromkeys(heads):
        attention = model.get_submodule(attention_path(kind, layer))
        assert isinstance(attention, MultiHeadAttention)
        weight = attention.w_o.weight.detach()
        width = weight.size(1) // attention.n_heads
        columns.append(weight[:, head * width : (head + 1) * width])
    kept = [view.clone() for view in columns]
    with torch.no_grad():
        for view in columns:
            view.zero_()
    try:
        yield
    finally:
        with torch.no_grad():
            for view, before in zip(columns, kept, strict=True):
                view.copy_(before)
