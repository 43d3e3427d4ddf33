"""Models to search in, and sources to search for."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.control_tokens import CONTROL_COUNT, EOS
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.translator import Translator
from clearhead.models.transformer import Transformer


@pytest.fixture(scope="session")
def random_model() -> Callable[..., Transformer]:
    """`random_model(seed)`: weights drawn at random, large enough for choices that differ; `tokens` ordinary ones."""

    def make(seed: int, *, tokens: int = 4, sharpness: float = 2.0, **shape: object) -> Transformer:
        torch.manual_seed(seed)
        vocabulary = CONTROL_COUNT + tokens
        sizes = {"d_model": 12, "d_ff": 17, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "tied": "none"}
        norm = {"norm_position": ("post", "pre")[seed % 2]}
        model = Transformer(
            ModelConfig(source_vocab=vocabulary, target_vocab=vocabulary, dropout=0.0, **(sizes | norm | shape))
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.4 * torch.randn_like(parameter)
            model.projection.weight *= sharpness
        return model.requires_grad_(False).eval()

    return make


@pytest.fixture(scope="session")
def random_sources() -> Callable[..., list[list[int]]]:
    """`random_sources(seed, lengths, tokens=4)`: token ids that end with the end token."""

    def make(seed: int, lengths: list[int], *, tokens: int = 4) -> list[list[int]]:
        generator = random.Random(seed)
        ids = range(CONTROL_COUNT, CONTROL_COUNT + tokens)
        return [[*generator.choices(ids, k=length), EOS] for length in lengths]

    return make


@pytest.fixture
def translator(half_trained, letters) -> Translator:
    """The half-trained copyist, with its letters."""
    return Translator(half_trained, *letters, DecodingOptions(max_length_ratio=1.2, max_length_extra=1))


@pytest.fixture(scope="session")
def lines() -> list[str]:
    """50 lines of 1 to 9 letters, in no order of length."""
    generator = random.Random(7)
    return ["".join(generator.choices("abcdefgh", k=generator.randint(1, 9))) for _ in range(50)]
