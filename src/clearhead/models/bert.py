"""BERT (Devlin et al., 2019), as a difference to the Transformer.

Transformer                        BERT
an encoder and a decoder           the encoder alone: every position sees every other
predicts the next token            predicts tokens that were masked, by a head of its own
sinusoids                          a learned vector for each of 512 positions
one text                           two segments, each with a vector that is added to its tokens
embeddings times sqrt(d_model)     layer normalisation of their sum
relu                               gelu
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from clearhead.config import FAMILIES, ModelConfig
from clearhead.errors import ConfigError
from clearhead.parts.attention import Mask
from clearhead.parts.dropout import Dropout
from clearhead.parts.embedding import make_embedding
from clearhead.parts.feed_forward import make_activation
from clearhead.parts.layers import Encoder
from clearhead.parts.normalization import make_norm
from clearhead.parts.positions import Start, make_positions

BERT_DIFFERENCES = FAMILIES["bert"]
"""What BERT changed, as options."""

BERT_SIZES: dict[str, dict[str, int]] = {
    "bert-base": {"encoder_layers": 12, "d_model": 768, "d_ff": 3072, "n_heads": 12},
    "bert-large": {"encoder_layers": 24, "d_model": 1024, "d_ff": 4096, "n_heads": 16},
    "minilm-l6": {"encoder_layers": 6, "d_model": 384, "d_ff": 1536, "n_heads": 12},
}
"""Published sizes; the uncased vocabulary has 30,522 tokens."""


def bert_config(size: str = "bert-base", *, vocabulary: int = 30_522, **changes: Any) -> ModelConfig:
    """The shape of a published BERT, with some fields changed."""
    sizes = {"source_vocab": vocabulary, "target_vocab": vocabulary, **BERT_SIZES[size]}
    return ModelConfig(**{**BERT_DIFFERENCES, **sizes, **changes})


class MaskedTokenHead(nn.Module):
    """One more matrix with activation and norm, then the projection to the vocabulary, with a bias for each token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.d_model, config.d_model)
        self.activation = make_activation(config.feed_forward)
        self.norm = make_norm(config)
        self.projection = nn.Linear(config.d_model, config.source_vocab)

    def forward(self, states: Float[Tensor, "*b m"]) -> Float[Tensor, "*b v"]:
        """Logits of the token that belongs at each position."""
        return self.projection(self.before_projection(states))

    def before_projection(self, states: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m"]:
        """What is projected to the vocabulary; training does that itself, together with the loss."""
        return self.norm(self.activation(self.transform(states)))


class BERT(nn.Module):
    """Embeddings of tokens, segments and positions, an encoder, and the heads that the configuration asks for."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.architecture != "encoder":
            raise ConfigError(f"architecture = {config.architecture!r} is no BERT's; use `make_model`")
        self.config = config
        self.embedding = make_embedding(config, config.source_vocab)
        self.segments = nn.Embedding(config.segments, config.d_model) if config.segments else None
        self.positions = make_positions(replace(config, dropout=0.0))  # dropout falls behind the norm
        self.norm = make_norm(config) if config.embedding == "normed" else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.head = MaskedTokenHead(config) if config.heads in ("masked_token", "both") else None
        self.pooler = nn.Linear(config.d_model, config.d_model) if config.heads in ("pooler", "both") else None
        self.reset_parameters()
        self.tie_weights()

    def reset_parameters(self) -> None:
        """BERT's own: a deviation of 0.02 for every matrix."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2 and not (name.startswith("embedding") and self.config.embedding == "scaled"):
                nn.init.normal_(parameter, std=0.02)

    def tie_weights(self) -> None:
        """Make the matrices one that the configuration says are one."""
        if self.head is not None and self.config.tied != "none":
            self.head.projection.weight = self.embedding.weight

    def forward(
        self,
        ids: Int[Tensor, "b s"],
        real: Bool[Tensor, "b s"] | Int[Tensor, "b s"] | None = None,
        segments: Int[Tensor, "b s"] | None = None,
        mask: Mask = None,
        start: Start = 0,
    ) -> Float[Tensor, "b s m"]:
        """The state of every position. `real` is true where there are tokens and no padding; segments begin as 0.

        Instead of `real` a whole `mask` can be given, which broadcasts to `(b, h, q, k)`: that of several documents in
        one row, for example, with every token's position in `start`.
        """
        x = self.embedding(ids)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        x = self.dropout(self.norm(self.positions(x, start)))
        return self.encoder(x, mask if real is None else real[:, None, None, :])

    def masked_token_logits(self, states: Float[Tensor, "*b m"]) -> Float[Tensor, "*b v"]:
        """What the masked-token head makes of states. Raises `ConfigError` if this model has none."""
        return self.masked_token_head()(states)

    def masked_token_head(self) -> MaskedTokenHead:
        """The head. Raises `ConfigError` if this model has none."""
        if self.head is None:
            raise ConfigError("this model has no masked-token head; it gives states and sentence vectors only")
        return self.head

    def pooled(self, states: Float[Tensor, "b s m"]) -> Float[Tensor, "b m"]:
        """The first position's state through the pooler and tanh. Raises `ConfigError` if this model has none."""
        if self.pooler is None:
            raise ConfigError("this model has no pooler")
        return torch.tanh(self.pooler(states[:, 0]))
