"""Recording what attention looks at, without changing what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jaxtyping import Float
from torch import Tensor, nn

from clearhead.parts.attention import ScaledDotProductAttention

AttentionMaps = dict[str, Float[Tensor, "b h q k"]]
"""Attention weights before dropout, by the path of their multi-head attention, as in
`maps["decoder.layers.3.cross_attention"]`. Hidden keys have exactly the weight 0."""


@contextmanager
def record_attention(model: nn.Module) -> Iterator[AttentionMaps]:
    """Record the weights of every attention in `model` while the context lasts.

    Each attention's entry holds its latest call: after a forward pass, the whole sentence. Outputs and gradients stay
    what they are without recording, to the bit: the weights are computed beside the fused kernel, not instead of it.

        with clearhead.record_attention(model) as maps:
            model(source_ids, decoder_input)
        maps["encoder.layers.0.self_attention"]  # (batch, heads, queries, keys)
    """
    maps: AttentionMaps = {}
    attentions = {
        name.removesuffix(".attention"): module
        for name, module in model.named_modules()
        if isinstance(module, ScaledDotProductAttention)
    }
    before = {name: attention.recorder for name, attention in attentions.items()}
    for name, attention in attentions.items():
        attention.recorder = keep_in(maps, name)
    try:
        yield maps
    finally:
        for name, attention in attentions.items():
            attention.recorder = before[name]


def keep_in(maps: AttentionMaps, name: str) -> Callable[[Tensor], None]:
    """A recorder that puts the weights under a name."""

    def keep(weights: Tensor) -> None:
        maps[name] = weights.detach()

    return keep
