"""What a model is asked in training: one function for each objective, from a batch to states and right answers.

The states are what the output projection turns into logits; `training_loss` does that itself, together with the loss.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from clearhead.models.bert import BERT
from clearhead.models.gpt import GPT
from clearhead.models.transformer import Transformer
from clearhead.parts.attention import Mask
from clearhead.parts.masks import document_mask
from clearhead.parts.positions import Start
from clearhead.text.batches import Batch
from clearhead.text.packing import PackedBatch


class Predictions(NamedTuple):
    """States of the positions that are asked, the projection that makes logits of them, and the right tokens."""

    states: Float[Tensor, "n m"]
    projection: nn.Linear
    labels: Int[Tensor, " n"]


def predict_target(model: Transformer, batch: Batch) -> Predictions:
    """Every token of the target, given the source and the target's tokens before it (section 3.1)."""
    states = model.states(batch.source, batch.decoder_input, rows=batch.rows)
    return Predictions(states, model.projection, batch.labels.flatten()[batch.rows])


def predict_next(model: GPT, batch: PackedBatch) -> Predictions:
    """Every token of a document but its first, given those before it (Radford et al., 2018)."""
    return Predictions(model.states(batch.ids, batch.rows, *seen_in(batch)), model.projection, batch.labels)


def predict_masked(model: BERT, batch: PackedBatch) -> Predictions:
    """The chosen tokens of a document, given all that is shown of it (Devlin et al., 2019, section 3.1).

    Raises `ConfigError` for a model without a masked-token head.
    """
    mask, start = seen_in(batch)
    states = model(batch.ids, mask=mask, start=start).flatten(0, 1).index_select(0, batch.rows)
    head = model.masked_token_head()
    return Predictions(head.before_projection(states), head.projection, batch.labels)


def seen_in(batch: PackedBatch) -> tuple[Mask, Start]:
    """What a token may look at, and where tokens stand: each document by itself."""
    return (None, 0) if batch.one_document else (document_mask(batch.documents), batch.positions)
