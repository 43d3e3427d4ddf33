"""Models to look into, with attention that is no even grey, and a browser to look with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.translator import Translator
from clearhead.models.transformer import Transformer
from clearhead.text.tokenizers import train_tokenizer


@pytest.fixture(scope="session")
def make_translator() -> Callable[..., Translator]:
    """`make_translator(source_words, target_words, **shape)`: tokens are words; weights are drawn at random."""

    def make(source: str, target: str, *, sharpness: float = 2.5, **shape: object) -> Translator:
        tokenizers = train_tokenizer("word", [source]), train_tokenizer("word", [target])
        sizes = {"d_model": 24, "d_ff": 17, "n_heads": 3, "encoder_layers": 2, "decoder_layers": 4, "dropout": 0.0}
        vocabulary = {"source_vocab": tokenizers[0].vocab_size, "target_vocab": tokenizers[1].vocab_size}
        torch.manual_seed(3)
        model = Transformer(ModelConfig(**vocabulary, **(sizes | shape)))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "w_q" in name or "w_k" in name:
                    parameter *= sharpness
        options = DecodingOptions(beam_size=2, max_length_ratio=1.0, max_length_extra=1)
        return Translator(model.requires_grad_(False).eval(), *tokenizers, options)

    return make


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """Headless Chromium: that of the system, or the one that CHROMIUM names."""
    api = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright, which is missing")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("the page is tested in chromium, which is not installed (Debian: apt-get install chromium)")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()
