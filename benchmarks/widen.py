"""A model of the base shape that computes what a trained tiny one computes.

Training base takes hours, and an untrained model's outputs end at once or never: nothing to measure decoding with. So
the tiny model is widened without changing its outputs (Chen, Goodfellow and Shlens, 2016, "Net2Net"): every vector is
written four times side by side, which layer normalisation doesn't notice; two more layers pass on what they get.
Products of zeros take as long as any others.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from clearhead.config import PRESETS, ModelConfig
from clearhead.models.transformer import Transformer
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.feed_forward import PositionwiseFeedForward
from clearhead.parts.layers import DecoderLayer, EncoderLayer
from clearhead.parts.normalization import LayerNorm


@torch.no_grad()
def widened(tiny: Transformer) -> Transformer:
    """`tiny`, post-norm with all embeddings tied, in the shape of `base`."""
    config = ModelConfig.from_dict({**tiny.config.to_dict(), **PRESETS["base"]})
    base = Transformer(config).eval()
    times = config.d_model // tiny.config.d_model
    # The embedding is scaled by the root of the width; as projection it sums all copies, see the last norm.
    base.target_embedding.weight.copy_(tiny.target_embedding.weight.tile(times) / times**0.5)
    base.positions.table = cast(Tensor, tiny.positions.table).tile(times)
    for stack, small in ((base.encoder, tiny.encoder), (base.decoder, tiny.decoder)):
        for number, layer in enumerate(stack.layers):
            copied = small.layers[number] if number < len(small.layers) else None
            for name, module in layer.named_modules():
                widen_part(module, copied.get_submodule(name) if copied else None, times)
        norms = [last_norm(layer) for layer in (stack.layers[len(small.layers) - 1], stack.layers[-1])]
        # The added layers pass on what is normalised already, so what follows the norm moves behind them.
        norms[1].gamma.copy_(norms[0].gamma)
        norms[1].beta.copy_(norms[0].beta)
        norms[0].gamma.fill_(1.0)
        norms[0].beta.zero_()
    closing = last_norm(base.decoder.layers[-1])
    closing.gamma.div_(times**0.5)
    closing.beta.div_(times**0.5)
    return base


def last_norm(layer: nn.Module) -> LayerNorm:
    """The norm that a layer ends with."""
    closing = layer.add_and_norm_3 if isinstance(layer, DecoderLayer) else cast(EncoderLayer, layer).add_and_norm_2
    return cast(LayerNorm, closing.norm)


def widen_part(part: nn.Module, small: nn.Module | None, times: int) -> None:
    """Make a part compute `times` copies of what `small` computes; without one, nothing at all."""
    if isinstance(part, LayerNorm) and isinstance(small, LayerNorm):
        part.gamma.copy_(small.gamma.tile(times))
        part.beta.copy_(small.beta.tile(times))
    elif isinstance(part, MultiHeadAttention):
        for linear in (part.w_q, part.w_k, part.w_v, part.w_o):
            linear.weight.zero_()
            linear.bias.zero_()
        if isinstance(small, MultiHeadAttention):
            widen_attention(part, small, times)
    elif isinstance(part, PositionwiseFeedForward):
        for linear in (part.w_1, part.w_2):
            linear.weight.zero_()
            linear.bias.zero_()
        if isinstance(small, PositionwiseFeedForward):
            inner, width = small.w_1.weight.shape
            part.w_1.weight[:inner, :width] = small.w_1.weight
            part.w_1.bias[:inner] = small.w_1.bias
            part.w_2.weight[:, :inner] = small.w_2.weight.tile(times, 1)
            part.w_2.bias.copy_(small.w_2.bias.tile(times))


def widen_attention(part: MultiHeadAttention, small: MultiHeadAttention, times: int) -> None:
    """Each small head lies at the beginning of a wide one; the other heads give nothing."""
    width = small.w_q.weight.size(1)
    narrow, wide = width // small.n_heads, part.w_q.weight.size(0) // part.n_heads
    places = torch.cat([torch.arange(narrow) + head * wide for head in range(small.n_heads)])
    for name in ("w_q", "w_k", "w_v"):
        theirs, ours = getattr(small, name), getattr(part, name)
        # Scores are divided by the root of the head's width, and the heads are wider here.
        scale = (wide / narrow) ** 0.5 if name == "w_q" else 1.0
        ours.weight[places, :width] = theirs.weight * scale
        ours.bias[places] = theirs.bias * scale
    columns: Tensor = small.w_o.weight.tile(times, 1)
    part.w_o.weight[:, places] = columns
    part.w_o.bias.copy_(small.w_o.bias.tile(times))
