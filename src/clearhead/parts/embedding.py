"""Token embeddings (section 3.4)."""

from __future__ import annotations

import math

from jaxtyping import Float, Int
from torch import Tensor, nn

from clearhead.config import ModelConfig


class TokenEmbedding(nn.Embedding):
    """A learned vector for each token, times the root of `d_model` (section 3.4).

    The weights start with a deviation of `0.5 * d_model ** -0.5`: scaled they are about as large as the positions added
    to them, and the same matrix, used as output projection, first gives logits of a variance of about 1/4, so that
    the untrained loss is close to the logarithm of the vocabulary (within 0.25, for any width and tying; twice the
    deviation, as is common, starts up to 5 above it with tied weights and pre-norm).
    """

    def __init__(self, vocabulary: int, d_model: int) -> None:
        super().__init__(vocabulary, d_model)
        self.scale = math.sqrt(d_model)

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        nn.init.normal_(self.weight, std=0.5 * self.embedding_dim**-0.5)

    def forward(self, ids: Int[Tensor, "*b"]) -> Float[Tensor, "*b m"]:
        """Look the tokens up."""
        return super().forward(ids) * self.scale


def make_embedding(config: ModelConfig, vocabulary: int) -> nn.Embedding:
    """The token embeddings of the model's shape; GPT, BERT and LLaMA take the vectors as they are."""
    if config.embedding == "scaled":
        return TokenEmbedding(vocabulary, config.d_model)
    embedding = nn.Embedding(vocabulary, config.d_model)
    nn.init.normal_(embedding.weight, std=0.02)
    return embedding
