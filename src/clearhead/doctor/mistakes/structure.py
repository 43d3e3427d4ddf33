"""Mistakes in what is built: positions, encoder, normalisation, weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor.mistakes.planted import planted
from clearhead.doctor.mistakes.textbook import Attention, Layer, Positions, Textbook, patient
from clearhead.doctor.patient import Patient


def with_positions(positions: type[Positions]) -> Patient:
    """The textbook's model with other positions."""
    return patient(type("Textbook", (Textbook,), {"positions_class": positions}))


def with_layer(layer: type[Layer], **sizes: Any) -> Patient:
    """The textbook's model with other layers."""
    return patient(type("Textbook", (Textbook,), {"layer": layer}), sizes=sizes)


@planted("positions", "the positional encoding was never called")
def no_positions() -> Patient:
    """Nothing tells the order of tokens."""

    class Wrong(Positions):
        def forward(self, x: Tensor, start: int = 0) -> Tensor:
            return x

    return with_positions(Wrong)


@planted("positions", "pe[:x.size(0)] of a tutorial that puts positions first, used with batches first")
def positions_along_the_batch() -> Patient:
    """Positions are added along the batch: all tokens of a sentence get the same one."""

    class Wrong(Positions):
        def forward(self, x: Tensor, start: int = 0) -> Tensor:
            return x + self.table[start : start + x.size(0)][:, None]

    return with_positions(Wrong)


@planted("positions", "S3: positions beyond the table")
def positions_repeat() -> Patient:
    """Positions are taken modulo 16, so that they never leave the table."""

    class Wrong(Positions):
        def forward(self, x: Tensor, start: int = 0) -> Tensor:
            return x + self.table[torch.arange(start, start + x.size(1)) % 16]

    return with_positions(Wrong)


@planted("positions", "S3, S4: start and end tokens are added behind the length limit")
def table_too_short() -> Patient:
    """The table of positions is shorter than the limit that is promised."""

    class Wrong(Positions):
        def __init__(self, d_model: int) -> None:
            super().__init__(d_model, length=198)

    return with_positions(Wrong)


@planted("encoder", "a decoder layer is given x where memory was meant")
def decoder_attends_to_itself() -> Patient:
    """Cross-attention takes keys and values from the decoder."""

    class Wrong(Layer):
        def memory_for(self, x: Tensor, memory: Tensor | None) -> Tensor:
            return x[:, :1].expand(-1, 1 if memory is None else memory.size(1), -1)

    return with_layer(Wrong)


@planted("encoder", "memory.detach()")
def memory_detached() -> Patient:
    """The encoder's output is detached: the decoder hears it, but the encoder learns nothing."""

    class Model(Textbook):
        def encode(self, source: Tensor) -> Tensor:
            return super().encode(source).detach()

    return patient(Model)


@planted("parts", "layers in a Python list")
def layers_in_a_list() -> Patient:
    """The layers are in a plain list: none of their weights is known to the model."""

    class Model(Textbook):
        def stack(self, layers: int, d_model: int, heads: int, dropout: float, *, cross: bool) -> Any:
            return [self.layer(d_model, heads, dropout, cross=cross) for _ in range(layers)]

    return patient(Model)


@planted("evaluation", "F.dropout without training=self.training")
def dropout_in_evaluation() -> Patient:
    """`F.dropout(x, 0.1)` drops in evaluation too."""

    class Wrong(Layer):
        def add(self, x: Tensor, place: int, sublayer: Any) -> Tensor:
            return x + F.dropout(sublayer(self.norms[place](x)), 0.1)

    return with_layer(Wrong)


@planted("evaluation", "M12: scaled_dot_product_attention has no training flag")
def attention_dropout_in_evaluation() -> Patient:
    """`dropout_p` is given to torch's attention whether or not the model is in training."""

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
            found = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=0.1)
            return self.w_o(self.join(found))

    return with_layer(type("Layer", (Layer,), {"attention": Wrong}))


@planted("evaluation", "a cache that stays on the module")
def memory_of_the_last_batch() -> Patient:
    """The encoder's mean stays on the module and is added to the next batch's."""

    class Model(Textbook):
        last: Tensor | None = None

        def encode(self, source: Tensor) -> Tensor:
            memory = super().encode(source)
            before, self.last = self.last, memory.detach().mean((0, 1))
            return memory if before is None else memory + 0.1 * before

    return patient(Model)


@planted("batch", "batch normalisation for layer normalisation")
def batch_normalization() -> Patient:
    """Batch normalisation in place of layer normalisation."""

    class Norm(nn.BatchNorm1d):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    return with_layer(type("Layer", (Layer,), {"normalization": Norm}))


@planted("batch", "batch_first of one module and not of the other")
def attention_over_the_batch() -> Patient:
    """The encoder's attention takes the batch for the positions."""

    class Model(Textbook):
        def encode(self, source: Tensor) -> Tensor:
            x = self.embed(self.source_embedding, source).transpose(0, 1)
            for layer in self.encoder:
                x = layer(x, None)
            return self.encoder_norm(x.transpose(0, 1))

    return patient(Model)


@planted("initial-loss", "T8: N(0, 1) embeddings, tied")
def large_tied_embeddings() -> Patient:
    """Embeddings keep nn.Embedding's N(0, 1) and are tied to the projection."""

    class Model(Textbook):
        def first_weights(self) -> None:
            pass

        def embed(self, embedding: nn.Embedding, ids: Tensor, start: int = 0) -> Tensor:
            return self.dropout(self.positions(embedding(ids), start))

    return patient(Model)


@planted("embedding-scale", "T8: no sqrt(d_model) with tied weights")
def embeddings_not_scaled() -> Patient:
    """Embeddings are small, as tied ones have to be, and not multiplied by the root of d_model."""

    class Model(Textbook):
        def embed(self, embedding: nn.Embedding, ids: Tensor, start: int = 0) -> Tensor:
            return self.dropout(self.positions(embedding(ids), start))

    return patient(Model, sizes={"d_model": 128})


@planted("tied-weights", "E4: tied by copying")
def tied_by_copying() -> Patient:
    """The projection gets a copy of the embedding's numbers."""

    class Model(Textbook):
        def tie(self) -> None:
            self.projection.weight.data = self.target_embedding.weight.data.clone()

    return patient(Model)


@planted("tied-weights", "E4: two parameters over one memory")
def tied_by_a_second_parameter() -> Patient:
    """The projection gets a new nn.Parameter over the embedding's memory."""

    class Model(Textbook):
        def tie(self) -> None:
            self.projection.weight = nn.Parameter(self.target_embedding.weight)

    return patient(Model)


@planted("depth", "x = sublayer(norm(x))")
def no_residual_connections() -> Patient:
    """Eight layers, and no residual connections."""

    class Wrong(Layer):
        def add(self, x: Tensor, place: int, sublayer: Any) -> Tensor:
            return self.dropout(sublayer(self.norms[place](x)))

    return with_layer(Wrong, layers=8)


@planted("warmup", "post-norm without warm-up diverges or stays at the unigrams")
def deep_post_norm_without_warmup() -> Patient:
    """Eight layers, post-norm, and a large learning rate from the first update on."""

    class PostNorm(Layer):
        def add(self, x: Tensor, place: int, sublayer: Any) -> Tensor:
            return self.norms[place](x + self.dropout(sublayer(x)))

    model = type("Textbook", (Textbook,), {"layer": PostNorm})
    return patient(
        model,
        sizes={"layers": 8},
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98)),
        warmup=None,
    )
