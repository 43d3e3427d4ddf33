"""Correct models of several makes: the doctor may raise no alarm on any of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.doctor.hugging_face import config_patient, transformers_library
from clearhead.doctor.mistakes import textbook
from clearhead.doctor.mistakes.textbook import PAD, VOCABULARY, Positions
from clearhead.doctor.patient import Patient
from clearhead.doctor.run_patient import clearhead_patient
from clearhead.recipe import TrainingSection

SHAPE: dict[str, Any] = {"d_model": 32, "d_ff": 64, "n_heads": 4, "encoder_layers": 3, "decoder_layers": 3}


def clearhead_post_norm() -> Patient:
    """Ours, as published."""
    shape = ModelConfig(source_vocab=41, target_vocab=37, **SHAPE)
    return clearhead_patient(shape, TrainingSection(warmup=200, updates=2000))


def clearhead_pre_norm() -> Patient:
    """Ours, pre-norm, one vocabulary, three-way tying."""
    shape = ModelConfig(source_vocab=41, target_vocab=41, norm_position="pre", tied="all", **SHAPE)
    return clearhead_patient(shape, TrainingSection(schedule="paper", warmup=400, updates=4000))


def textbook_patient() -> Patient:
    """The model that the mistakes are made in."""
    return textbook.patient()


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` used rightly: both key padding masks, a causal mask, and no sentence without a token."""

    def __init__(self, *, norm_first: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        nn.init.normal_(self.embedding.weight, std=32**-0.5)
        self.positions = Positions(32)
        self.transformer = nn.Transformer(32, 4, 3, 3, 64, 0.1, batch_first=True, norm_first=norm_first)
        self.projection = nn.Linear(32, VOCABULARY)

    def forward(self, source: Tensor, ids: Tensor) -> Tensor:
        """Logits of the next token."""
        hidden = source == PAD
        hidden = hidden & ~hidden.all(1, keepdim=True)  # an empty sentence sees its padding, rather than nothing
        later = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).triu(1)
        states = self.transformer(
            self.positions(self.embedding(source) * math.sqrt(32)),
            self.positions(self.embedding(ids) * math.sqrt(32)),
            tgt_mask=later,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )
        return self.projection(states)


def torch_loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over real tokens."""
    logits = model(source, target[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)


def torch_post_norm() -> Patient:
    """torch.nn.Transformer, post-norm."""
    return Patient(build=TorchTransformer, name="torch.nn.Transformer", vocabulary=VOCABULARY, loss=torch_loss)


def torch_pre_norm() -> Patient:
    """torch.nn.Transformer, pre-norm."""
    build = lambda: TorchTransformer(norm_first=True)  # noqa: E731
    return Patient(build=build, name="torch.nn.Transformer, pre-norm", vocabulary=VOCABULARY, loss=torch_loss)


class TorchDecoder(nn.Module):
    """A decoder-only model of torch's encoder layers with a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        nn.init.normal_(self.embedding.weight, std=32**-0.5)
        self.positions = Positions(32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, nn.LayerNorm(32), enable_nested_tensor=False)
        self.projection = nn.Linear(32, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the next token."""
        later = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).triu(1)
        return self.projection(self.layers(self.positions(self.embedding(ids) * math.sqrt(32)), mask=later))


def torch_decoder() -> Patient:
    """Decoder-only, of torch.nn.TransformerEncoder."""
    return Patient(
        build=TorchDecoder, kind="decoder", name="torch.nn.TransformerEncoder, causal", vocabulary=VOCABULARY
    )


def marian() -> Patient:
    """transformers' Marian, random weights, as the published opus-mt models are configured."""
    config = transformers_library().MarianConfig(
        vocab_size=VOCABULARY, d_model=64, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=128,
        pad_token_id=39, eos_token_id=0, decoder_start_token_id=39, forced_eos_token_id=None, scale_embedding=True,
        activation_function="swish",
    )  # fmt: skip
    return config_patient(config, name="transformers' Marian")


def gpt2() -> Patient:
    """transformers' GPT-2, random weights."""
    config = transformers_library().GPT2Config(
        vocab_size=VOCABULARY, n_embd=64, n_layer=3, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2
    )
    return config_patient(config, name="transformers' GPT-2")


def llama() -> Patient:
    """transformers' LLaMA, random weights: rotary positions."""
    config = transformers_library().LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=128, max_position_embeddings=128,
    )  # fmt: skip
    return config_patient(config, name="transformers' LLaMA")


def t5() -> Patient:
    """transformers' T5, random weights: distances in the scores, which nothing scales."""
    config = transformers_library().T5Config(
        vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=128, num_layers=3, num_heads=4, decoder_start_token_id=0
    )
    return config_patient(config, name="transformers' T5")


def bert() -> Patient:
    """transformers' BERT, random weights."""
    config = transformers_library().BertConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=128, pad_token_id=0,
    )  # fmt: skip
    return config_patient(config, name="transformers' BERT")


SOUND: tuple[Callable[[], Patient], ...] = (
    textbook_patient, clearhead_post_norm, clearhead_pre_norm, torch_post_norm, torch_pre_norm, torch_decoder,
)  # fmt: skip
SOUND_TRANSFORMERS: tuple[Callable[[], Patient], ...] = (marian, gpt2, bert, llama, t5)
