"""Marian's names in `transformers`, and the order of its vocabulary.

Ours begins with padding, start, end and unknown; theirs has them anywhere, and starts the target with padding. So the
rows of the shared matrix are put in our order, and padding's row is there twice, as padding and as start token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.control_tokens import BOS, EOS, PAD, UNK
from clearhead.errors import ConfigError
from clearhead.interchange.attributes import Attributes
from clearhead.interchange.families.family import GELUS, THEIR_GELUS, Family
from clearhead.interchange.rows import Copy, Dropped, Row, Table, Tensors, flat, linear, norm
from clearhead.models.marian import MARIAN
from clearhead.text.control import Control
from clearhead.text.marian import vocabulary_order

NEVER = -300.0
"""The bias of a start token that is no token of theirs: `exp` of it is 0 in float32, and yet it adds little to a
smoothed loss, which asks a share of every token: 0.0005 with 58,000 of them."""


@dataclass(frozen=True)
class InOurOrder:
    """A matrix or a bias with an entry for each token, in the order of our vocabulary."""

    theirs: str
    ours: str
    control: Control
    bias: bool = False

    def read(self, tensor: Tensor) -> Tensors:
        """Our parameter."""
        tensor = tensor.squeeze(0) if self.bias else tensor
        ours = tensor[torch.tensor(vocabulary_order(self.control, len(tensor)))]
        if self.bias and self.control.start == self.control.padding:
            ours[BOS] = NEVER
        return {self.ours: ours}

    def write(self, ours: Tensors) -> Tensor:
        """The inverse of `read`."""
        tensor = ours[self.ours]
        doubled = self.control.start == self.control.padding
        order = vocabulary_order(self.control, len(tensor) - doubled)
        theirs = tensor.new_empty(len(tensor) - doubled, *tensor.shape[1:])
        theirs[torch.tensor(order)] = tensor
        if doubled:  # as an embedding it is the start token's, as an output it is padding's
            theirs[order[PAD]] = tensor[PAD if self.bias else BOS]
        return theirs[None] if self.bias else theirs


def read_config(their: Attributes, tensors: Tensors, control: Control) -> ModelConfig:
    """Our shape of a Marian model."""
    their.require(
        share_encoder_decoder_embeddings=True, scale_embedding=True, tie_word_embeddings=True, is_decoder=False,
        normalize_before=False, normalize_embedding=False, add_final_layer_norm=False, add_bias_logits=False,
        static_position_embeddings=True, encoder_layerdrop=0.0, decoder_layerdrop=0.0, extra_pos_embeddings=0,
        force_bos_token_to_be_generated=False,
    )  # fmt: skip
    size, layers = their.whole("vocab_size"), their.whole("encoder_layers")
    their.require(decoder_vocab_size=size, num_hidden_layers=layers)
    heads, width = their.whole("encoder_attention_heads"), their.whole("encoder_ffn_dim")
    their.require(decoder_attention_heads=heads, decoder_ffn_dim=width)
    vocabulary = len(vocabulary_order(control, size))
    return ModelConfig(**{
        **MARIAN,
        "source_vocab": vocabulary,
        "target_vocab": vocabulary,
        "d_model": their.whole("d_model"),
        "d_ff": width,
        "n_heads": heads,
        "encoder_layers": layers,
        "decoder_layers": their.whole("decoder_layers"),
        "max_positions": their.take("max_position_embeddings", 1024),  # not that sinusoids would end there
        "feed_forward": their.choose("activation_function", "gelu", GELUS),
        "dropout": their.take("dropout", 0.1),
        "attention_dropout": their.take("attention_dropout", 0.0),
        "feed_forward_dropout": their.take("activation_dropout", 0.0),
    })  # fmt: skip


def write_config(config: ModelConfig, control: Control) -> dict[str, Any]:
    """The attributes of a Marian model of our shape."""
    wanted = {key: value for key, value in MARIAN.items() if key != "feed_forward"}
    fixed = {"architecture": "encoder-decoder", "norm_position": "post", "norm": "layer", "embedding": "scaled"}
    for name, value in {**wanted, **fixed, "norm_epsilon": 1e-5}.items():
        if getattr(config, name) != value:
            raise ConfigError(f"Marian has {name} = {value!r}, but this model {getattr(config, name)!r}")
    if config.feed_forward not in THEIR_GELUS:
        raise ConfigError(f"Marian has no feed_forward = {config.feed_forward!r}")
    size = config.target_vocab - (control.start == control.padding)
    return {
        "architectures": ["MarianMTModel"],
        "vocab_size": size,
        "decoder_vocab_size": size,
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.n_heads,
        "decoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": THEIR_GELUS[config.feed_forward],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout_rate,
        "activation_dropout": config.feed_forward_dropout_rate,
        "max_position_embeddings": config.max_positions or 1024,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "decoder_start_token_id": control.start,
        "forced_eos_token_id": control.end[0],
    }


def table(config: ModelConfig, control: Control) -> Table:
    """Their names and ours."""
    rows: list[Row] = [
        InOurOrder("model.shared.weight", "source_embedding.weight", control),
        InOurOrder("final_logits_bias", "projection.bias", control, bias=True),
    ]
    rows += flat(layer("encoder", number, ["self_attn"]) for number in range(config.encoder_layers))
    rows += flat(layer("decoder", number, ["self_attn", "encoder_attn"]) for number in range(config.decoder_layers))
    tied = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    return Table(
        rows,
        [
            *(Copy(name, of="model.shared.weight") for name in tied),
            Dropped(r"model\.(encoder|decoder)\.embed_positions\.weight"),  # sinusoids
        ],
    )


def layer(stack: str, number: int, attentions: list[str]) -> list[Row]:
    """One layer."""
    theirs, ours = f"model.{stack}.layers.{number}", f"{stack}.layers.{number}"
    rows: list[Row] = []
    for place, name in enumerate(attentions, start=1):
        own = f"{ours}.{'self_attention' if name == 'self_attn' else 'cross_attention'}"
        for projection, w in (("q_proj", "w_q"), ("k_proj", "w_k"), ("v_proj", "w_v"), ("out_proj", "w_o")):
            rows += linear(f"{theirs}.{name}.{projection}", f"{own}.{w}")
        rows += norm(f"{theirs}.{name}_layer_norm", f"{ours}.add_and_norm_{place}.norm")
    rows += linear(f"{theirs}.fc1", f"{ours}.feed_forward.w_1") + linear(f"{theirs}.fc2", f"{ours}.feed_forward.w_2")
    return rows + norm(f"{theirs}.final_layer_norm", f"{ours}.add_and_norm_{len(attentions) + 1}.norm")


OWN_ORDER = Control(padding=PAD, start=BOS, end=(EOS,), unknown=UNK)
"""The control tokens of a model that was trained here: nothing is reordered."""

FAMILY = Family("marian", read_config, write_config, table, base_prefix="model.", base_marker="shared.weight")
