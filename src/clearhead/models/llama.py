"""LLaMA (Touvron et al., 2023) to LLaMA 3, as a difference to GPT: options, and not a line of code.

    GPT-2                                  LLaMA
    a learned vector for each position     queries and keys are turned by their positions (rotary)
    layer normalisation                    RMSNorm: no mean, no bias
    gelu between two matrices              SwiGLU: silu, gated by a third matrix
    biases                                 none
    as many heads of keys as of queries    fewer, shared (LLaMA 2 70B, LLaMA 3)
    tied output                            a projection of its own (the small ones are tied again)

`d_ff` follows LLaMA 1's rule: 2/3 of `4 * d_model`, rounded up to a multiple of 256.
"""

from __future__ import annotations

from typing import Any

from clearhead.config import FAMILIES, ModelConfig
from clearhead.models.gpt import GPT

LLAMA = FAMILIES["llama"]
"""What LLaMA changed, as options."""

LLAMA_3_1_SCALING = {
    "kind": "llama3",
    "factor": 8.0,
    "low_frequency_factor": 1.0,
    "high_frequency_factor": 4.0,
    "original_positions": 8192,
}
"""How LLaMA 3.1 stretched 8,192 positions to 131,072."""

LLAMA_SIZES: dict[str, dict[str, Any]] = {
    "llama-7b": {"vocabulary": 32_000, "decoder_layers": 32, "d_model": 4096, "d_ff": 11_008, "n_heads": 32,
                 "max_positions": 2048},
    "llama-2-70b": {"vocabulary": 32_000, "decoder_layers": 80, "d_model": 8192, "d_ff": 28_672, "n_heads": 64,
                    "kv_heads": 8, "max_positions": 4096, "norm_epsilon": 1e-5},
    "llama-3.1-8b": {"vocabulary": 128_256, "decoder_layers": 32, "d_model": 4096, "d_ff": 14_336, "n_heads": 32,
                     "kv_heads": 8, "max_positions": 131_072, "norm_epsilon": 1e-5, "rotary_base": 500_000.0,
                     "rotary_scaling": LLAMA_3_1_SCALING},
    "smollm2-135m": {"vocabulary": 49_152, "decoder_layers": 30, "d_model": 576, "d_ff": 1536, "n_heads": 9,
                     "kv_heads": 3, "max_positions": 8192, "norm_epsilon": 1e-5, "rotary_base": 100_000.0,
                     "tied": "output"},
}  # fmt: skip
"""Published sizes."""


def llama_config(size: str = "llama-7b", **changes: Any) -> ModelConfig:
    """The shape of a published LLaMA or of one of its kin, with some fields changed; `vocabulary` is one too."""
    fields = {**LLAMA, **LLAMA_SIZES[size], **changes}
    vocabulary = fields.pop("vocabulary")
    return ModelConfig(**{"source_vocab": vocabulary, "target_vocab": vocabulary, **fields})


LLaMA = GPT
"""The same class, under the name by which it is looked for: its configuration is all that makes it a LLaMA."""
