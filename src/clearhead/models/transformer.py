"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), figure 1."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.control_tokens import PAD
from clearhead.errors import ConfigError, RunError
from clearhead.parts.cache import DecoderCache
from clearhead.parts.embedding import make_embedding
from clearhead.parts.layers import Decoder, Encoder
from clearhead.parts.masks import padding_mask
from clearhead.parts.positions import make_positions


class Memory(NamedTuple):
    """What the encoder made of the source."""

    states: Float[Tensor, "b s m"]
    mask: Bool[Tensor, "b 1 1 s"]


class Transformer(nn.Module):
    """Encoder, decoder, embeddings and output projection.

    Token ids are right-padded with 0. The source ends with the end token; the decoder's input is the target behind
    the start token, and position `t` of the logits predicts the target's token `t`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.architecture != "encoder-decoder":
            raise ConfigError(f"architecture = {config.architecture!r} is no Transformer's; use `make_model`")
        self.config = config
        self.source_embedding = make_embedding(config, config.source_vocab)
        self.target_embedding = make_embedding(config, config.target_vocab)
        self.positions = make_positions(config)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.projection = nn.Linear(config.d_model, config.target_vocab, bias=config.output_bias)
        self.reset_parameters()
        self.tie_weights()

    def reset_parameters(self) -> None:
        """Glorot's uniform for every matrix of the layers, zero for the biases (as the paper's own code does)."""
        for stack in (self.encoder, self.decoder):
            for module in stack.modules():
                if isinstance(module, nn.Linear):
                    nn.init.xavier_uniform_(module.weight)
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.projection.weight, std=0.5 * self.config.d_model**-0.5)
        if self.projection.bias is not None:
            nn.init.zeros_(self.projection.bias)

    def tie_weights(self) -> None:
        """Make the matrices one that the configuration says are one (section 3.4)."""
        if self.config.tied == "all":
            self.source_embedding.weight = self.target_embedding.weight
        if self.config.tied != "none":
            self.projection.weight = self.target_embedding.weight

    def forward(
        self,
        source: Int[Tensor, "b s"],
        decoder_input: Int[Tensor, "b t"],
        rows: Int[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "b t v"] | Float[Tensor, "n v"]:
        """Logits of the next target token, given the source and the target so far.

        `rows` names flat positions in `(b * t)`: only they are projected to the vocabulary, and the logits are
        `(n, v)`. Padding can be left out this way.
        """
        return self.projection(self.states(source, decoder_input, rows))

    def states(
        self, source: Int[Tensor, "b s"], decoder_input: Int[Tensor, "b t"], rows: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, "b t m"] | Float[Tensor, "n m"]:
        """What `forward` projects to the vocabulary; training does that itself, together with the loss."""
        states = self.decode(decoder_input, self.encode(source))
        return states if rows is None else states.flatten(0, 1).index_select(0, rows)

    def encode(self, source: Int[Tensor, "b s"]) -> Memory:
        """Run the encoder; padding is hidden from every head of every layer."""
        mask = padding_mask(source, PAD)
        return Memory(self.encoder(self.positions(self.source_embedding(source)), mask), mask)

    def decode(self, decoder_input: Int[Tensor, "b t"], memory: Memory) -> Float[Tensor, "b t m"]:
        """Run the decoder over whole targets; position `t` sees positions up to `t` and the source."""
        return self.decoder(self.positions(self.target_embedding(decoder_input)), memory.states, memory.mask)

    def start_cache(self, memory: Memory, *, beams: int = 1, capacity: int = 32) -> DecoderCache:
        """What `step` keeps of its past; `beams` hypotheses for each sentence."""
        return self.decoder.start_cache(memory.states, memory.mask, beams=beams, capacity=capacity)

    def step(self, ids: Int[Tensor, "r q"], cache: DecoderCache) -> Float[Tensor, "r q v"]:
        """Logits behind the next `q` tokens of each open hypothesis; equal to `forward` over all tokens at once."""
        return self.projection(self.step_states(ids, cache))

    def step_states(self, ids: Int[Tensor, "r q"], cache: DecoderCache) -> Float[Tensor, "r q m"]:
        """What `step` projects to the vocabulary."""
        return self.decoder.step(self.positions(self.target_embedding(ids), start=cache.positions()), cache)


def parameter_names(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every parameter once, under its plain name; a tied matrix goes by its first name."""
    return dict(model.named_parameters())


def load_weights(model: nn.Module, path: Path) -> None:
    """Read a file of weights, tied ones stored once, into a model of the same shape.

    Raises `RunError` when the file is no such file, or a name or a shape differs.
    """
    try:
        stored = load_file(str(path))
    except FileNotFoundError:
        raise RunError(f"{path}: no such file; has the run been trained?") from None
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path}: not a readable safetensors file ({error})") from None
    copy_weights(model, stored, origin=str(path))


def copy_weights(model: nn.Module, stored: dict[str, Tensor], *, origin: str) -> None:
    """Copy tensors into the model by name, strictly (`require_weights`)."""
    require_weights(model, stored, origin=origin)
    with torch.no_grad():
        for name, parameter in parameter_names(model).items():
            parameter.copy_(stored[name])


def require_weights(model: nn.Module, stored: dict[str, Tensor], *, origin: str) -> None:
    """Refuse weights of another model: nothing may be missing, nothing left over, every shape is to be equal."""
    parameters = parameter_names(model)
    missing, unknown = sorted(parameters.keys() - stored.keys()), sorted(stored.keys() - parameters.keys())
    if missing or unknown:
        raise RunError(
            f"{origin} is of another model: "
            f"it lacks {missing[:5] or 'nothing'}, and these it has too many: {unknown[:5] or 'none'}"
        )
    for name, parameter in parameters.items():
        if parameter.shape != stored[name].shape:
            raise RunError(
                f"{origin}: {name} has the shape {tuple(stored[name].shape)}, the model {tuple(parameter.shape)}"
            )
