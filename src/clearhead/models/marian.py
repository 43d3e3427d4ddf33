"""Marian (Junczys-Dowmunt et al., 2018) and its opus-mt models: the Transformer itself, and a few options.

    Transformer                    Marian
    sine and cosine take turns     all sines, then all cosines
    relu                           silu, which Marian calls swish
    embeddings shared              the same
    a plain projection             a bias for each token
    a start token of its own       padding starts the target

There is no class: `Transformer(marian_config(...))`. Its padding, start, end and unknown are given the ids 0 to 3 that
they have everywhere here; `interchange/` puts the rows of its matrices in that order, and back again.
"""

from __future__ import annotations

from typing import Any

from clearhead.config import FAMILIES, PRESETS, ModelConfig

MARIAN = FAMILIES["marian"]
"""What Marian's translation models changed, as options."""


def marian_config(*, vocabulary: int = 58_102, **changes: Any) -> ModelConfig:
    """The shape of an opus-mt model: the paper's base; the vocabulary holds the start token beside padding."""
    fields = {**MARIAN, **PRESETS["base"], "source_vocab": vocabulary, "target_vocab": vocabulary, **changes}
    return ModelConfig(**fields)
