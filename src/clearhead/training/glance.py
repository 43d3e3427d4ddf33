"""A few texts of a training batch, to look inside the model with (`diagnostics.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.parts.masks import document_mask
from clearhead.text.batches import Batch
from clearhead.text.packing import PackedBatch
from clearhead.training.predictions import seen_in

TEXTS = 8
"""Of the batch are looked at: enough for a mean over some hundred queries, and next to nothing beside an update."""


@dataclass(frozen=True)
class Glance:
    """How to run the model over a few texts, and what is real in them."""

    real: dict[str, Tensor]
    """`(b, t)` for each stack of layers: where there are tokens and no padding."""
    seen: Callable[[str], Tensor]
    """Of an attention, by its path: how many keys each query may look at; `(b, t)`, or `(b, 1)` where all see alike."""
    run: Callable[[Any], object]
    """A forward pass of the model."""


def glance_at_pairs(batch: Batch) -> Glance:
    """A few pairs."""
    source, decoder_input = batch.source[:TEXTS], batch.decoder_input[:TEXTS]
    source = source[:, : max(1, int((source != 0).sum(1).max()))]
    decoder_input = decoder_input[:, : max(1, int((decoder_input != 0).sum(1).max()))]
    real = {"encoder": source != 0, "decoder": decoder_input != 0}

    def seen(name: str) -> Tensor:
        if name.startswith("decoder") and "self_attention" in name:
            return torch.ones_like(real["decoder"]).cumsum(1)
        return real["encoder"].sum(1, keepdim=True)

    return Glance(real, seen, lambda model: model.states(source, decoder_input))


def glance_at_blocks(batch: PackedBatch) -> Glance:
    """A few blocks of documents."""
    ids, real = batch.ids[:TEXTS], batch.documents[:TEXTS] >= 0
    mask, start = seen_in(batch)
    mask, start = (mask, start) if isinstance(start, int) or mask is None else (mask[:TEXTS], start[:TEXTS])

    def seen(name: str) -> Tensor:
        if name.startswith("decoder"):
            return batch.positions[:TEXTS] + 1
        return document_mask(batch.documents[:TEXTS]).sum(-1).squeeze(1)

    def run(model: Any) -> object:
        return model.states(ids, None, mask, start) if hasattr(model, "decoder") else model(ids, mask=mask, start=start)

    return Glance({"encoder": real, "decoder": real}, seen, run)
