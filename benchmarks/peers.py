"""The other libraries' Transformers of our shape, as their documentation would have one write them."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.control_tokens import BOS, EOS, PAD
from clearhead.models.transformer import Transformer
from clearhead.parts.positions import sinusoids

POSITIONS = 1056
"""A little more than the longest sentences that are measured (benchmarks/growth.py)."""


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` between shared embeddings, sinusoids and a tied projection."""

    positions: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.embedding = nn.Embedding(config.source_vocab, config.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.register_buffer("positions", sinusoids(POSITIONS, config.d_model))
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.n_heads,
            config.encoder_layers,
            config.decoder_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        # The paper has no norm behind post-norm stacks.
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        self.projection = nn.Linear(config.d_model, config.target_vocab, bias=False)
        self.projection.weight = self.embedding.weight

    def forward(self, source: Tensor, decoder_input: Tensor) -> Tensor:
        """Logits of every position, padding included."""
        hidden = source == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(
            decoder_input.size(1), device=decoder_input.device, dtype=torch.bool
        )
        states = self.transformer(
            self.embed(source),
            self.embed(decoder_input),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return self.projection(states)

    def embed(self, ids: Tensor) -> Tensor:
        """Embeddings and positions."""
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.size(1)])


def marian(config: ModelConfig) -> Any:
    """transformers' MarianMTModel, untrained: the paper's Transformer too, with our sinusoids for its positions.

    Its positions are set here, in memory: `from_pretrained` would rebuild its own.
    """
    from transformers import MarianConfig, MarianMTModel

    model = MarianMTModel(
        MarianConfig(
            vocab_size=config.source_vocab,
            d_model=config.d_model,
            encoder_layers=config.encoder_layers,
            decoder_layers=config.decoder_layers,
            encoder_attention_heads=config.n_heads,
            decoder_attention_heads=config.n_heads,
            encoder_ffn_dim=config.d_ff,
            decoder_ffn_dim=config.d_ff,
            activation_function="relu",
            dropout=config.dropout,
            attention_dropout=config.attention_dropout_rate,
            activation_dropout=config.feed_forward_dropout_rate,
            scale_embedding=True,
            max_position_embeddings=POSITIONS,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight.data = sinusoids(POSITIONS, config.d_model)
    return model


def copy_to_marian(ours: Transformer, theirs: Any) -> None:
    """Give Marian our weights, by name; our embeddings are shared and tied (`tied="all"`) as Marian's are."""
    stored = {
        "model.shared.weight": ours.projection.weight,
        "lm_head.weight": ours.projection.weight,
        "final_logits_bias": torch.zeros(1, ours.config.target_vocab),
    }
    for name, parameter in ours.named_parameters():
        if name.startswith(("encoder.", "decoder.")):
            stored[marian_name(name)] = parameter
    missing, unknown = theirs.load_state_dict(stored, strict=False)
    if unknown or any("embed_" not in name for name in missing):
        raise RuntimeError(f"the weights don't fit: missing {missing}, unknown {unknown}")
    for stack in (theirs.model.encoder, theirs.model.decoder):
        stack.embed_positions.weight.data = cast(torch.Tensor, ours.positions.table)[:POSITIONS].clone()


def marian_name(name: str) -> str:
    """`encoder.layers.0.self_attention.w_q.weight` is Marian's `model.encoder.layers.0.self_attn.q_proj.weight`."""
    norms = ["self_attn_layer_norm", "final_layer_norm"]
    if name.startswith("decoder."):
        norms.insert(1, "encoder_attn_layer_norm")
    for ours, theirs in (
        ("self_attention", "self_attn"),
        ("cross_attention", "encoder_attn"),
        ("w_q", "q_proj"),
        ("w_k", "k_proj"),
        ("w_v", "v_proj"),
        ("w_o", "out_proj"),
        ("feed_forward.w_1", "fc1"),
        ("feed_forward.w_2", "fc2"),
        ("norm.gamma", "norm.weight"),
        ("norm.beta", "norm.bias"),
        *((f"add_and_norm_{i}.norm", norm) for i, norm in enumerate(norms, start=1)),
    ):
        name = name.replace(ours, theirs)
    return f"model.{name}"
