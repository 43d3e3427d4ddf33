"""GPT (Radford et al., 2018 and 2019), as a difference to the Transformer.

    Transformer                        GPT-2
    an encoder and a decoder           the decoder alone: no source, no cross-attention
    a target behind a start token      any text; each token predicts the next
    sinusoids                          a learned vector for each of 1,024 positions
    embeddings times sqrt(d_model)     embeddings as they are
    LayerNorm(x + Sublayer(x))         x + Sublayer(LayerNorm(x)), and a norm at the end
    relu                               gelu, approximated by tanh

The class serves every model of that kind. LLaMA is one too: all that it changed are options (`models/llama.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from clearhead.config import FAMILIES, ModelConfig
from clearhead.errors import ConfigError
from clearhead.parts.attention import Mask
from clearhead.parts.decoder_only import DecoderOnly, TextCache
from clearhead.parts.dropout import Dropout
from clearhead.parts.embedding import make_embedding
from clearhead.parts.positions import Rotation, Start, make_positions

GPT2 = FAMILIES["gpt2"]
"""What GPT-2 changed, as options."""

GPT2_SIZES: dict[str, dict[str, int]] = {
    "gpt2": {"decoder_layers": 12, "d_model": 768, "d_ff": 3072, "n_heads": 12},
    "gpt2-medium": {"decoder_layers": 24, "d_model": 1024, "d_ff": 4096, "n_heads": 16},
    "gpt2-large": {"decoder_layers": 36, "d_model": 1280, "d_ff": 5120, "n_heads": 20},
    "gpt2-xl": {"decoder_layers": 48, "d_model": 1600, "d_ff": 6400, "n_heads": 25},
}
"""The published sizes; the vocabulary of all has 50,257 tokens."""


def gpt2_config(size: str = "gpt2", *, vocabulary: int = 50_257, **changes: Any) -> ModelConfig:
    """The shape of a published GPT-2, with some fields changed."""
    return ModelConfig(
        **{"source_vocab": vocabulary, "target_vocab": vocabulary, **GPT2, **GPT2_SIZES[size], **changes}
    )


class GPT(nn.Module):
    """Embedding, positions, a decoder without a source, and the output projection.

    Token ids are right-padded with anything: no position looks ahead.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.architecture != "decoder":
            raise ConfigError(f"architecture = {config.architecture!r} is no GPT's; use `make_model`")
        self.config = config
        self.embedding = make_embedding(config, config.target_vocab)
        self.positions = make_positions(config)
        self.dropout = Dropout(config.dropout)
        self.decoder = DecoderOnly(config)
        self.projection = nn.Linear(config.d_model, config.target_vocab, bias=config.output_bias)
        self.reset_parameters()
        self.tie_weights()

    def reset_parameters(self) -> None:
        """GPT-2's own: a deviation of 0.02; less for the matrices whose outputs add up along the residual stream."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2 and not name.startswith("embedding"):
                onto_stream = name.endswith(("w_o.weight", "w_2.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * len(self.decoder.layers)) ** 0.5 if onto_stream else 0.02)

    def tie_weights(self) -> None:
        """Make the matrices one that the configuration says are one."""
        if self.config.tied != "none":
            self.projection.weight = self.embedding.weight

    def forward(
        self, ids: Int[Tensor, "b t"], rows: Int[Tensor, " n"] | None = None, mask: Mask = None, start: Start = 0
    ) -> Float[Tensor, "b t v"] | Float[Tensor, "n v"]:
        """Logits of the token behind each; of the flat positions `rows` alone, if they are given.

        `mask` hides more than what comes later, other documents in the same row, for example; `start` says where the
        first token stands, or where each does.
        """
        return self.projection(self.states(ids, rows, mask, start))

    def states(
        self, ids: Int[Tensor, "b t"], rows: Int[Tensor, " n"] | None = None, mask: Mask = None, start: Start = 0
    ) -> Float[Tensor, "b t m"] | Float[Tensor, "n m"]:
        """What `forward` projects to the vocabulary."""
        x, rotation = self.place(ids, start)
        states = self.decoder(x, mask, rotation=rotation)
        return states if rows is None else states.flatten(0, 1).index_select(0, rows)

    def place(self, ids: Int[Tensor, "b t"], start: Start) -> tuple[Float[Tensor, "b t m"], Rotation | None]:
        """Embeddings that know their positions; or the angles by which attention is to turn."""
        x = self.embedding(ids)
        if self.config.positions == "rotary":
            return self.dropout(x), self.positions(ids.size(1), start)
        return self.positions(x, start), None

    def start_cache(self, texts: int, *, capacity: int = 128) -> TextCache:
        """What `step` keeps of its past."""
        return self.decoder.start_cache(texts, capacity=capacity)

    def step(self, ids: Int[Tensor, "r q"], cache: TextCache) -> Float[Tensor, "r q v"]:
        """Logits behind the next `q` tokens of each open hypothesis; equal to `forward` over all tokens at once."""
        return self.projection(self.step_states(ids, cache))

    def step_states(self, ids: Int[Tensor, "r q"], cache: TextCache) -> Float[Tensor, "r q m"]:
        """What `step` projects to the vocabulary: of a prompt only the last position is worth it."""
        x, rotation = self.place(ids, cache.positions())
        return self.decoder.step(x, cache, rotation)

    def start(self, prompts: Int[Tensor, "b t"], lengths: Int[Tensor, " b"], cache: TextCache) -> Float[Tensor, "b v"]:
        """Read right-padded prompts into an empty cache; logits behind the last token of each."""
        states = self.step_states(prompts, cache)
        cache.forget_padding(lengths)
        return self.projection(states[torch.arange(len(lengths), device=lengths.device), lengths - 1])
