"""Clearhead: the Transformer of "Attention Is All You Need", from its parts up.

    import clearhead

    translator = clearhead.load("runs/dates")
    translator.translate(["11 novembre 1918"], beam_size=5)

Importing the package is quick: what needs torch is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clearhead.errors import ClearheadError, ConfigError, DataError, RunError

if TYPE_CHECKING:
    from clearhead.config import ModelConfig
    from clearhead.decoding.encoder import TextEncoder
    from clearhead.decoding.generation_options import GenerationOptions
    from clearhead.decoding.generator import TextGenerator
    from clearhead.decoding.loading import load
    from clearhead.decoding.options import DecodingOptions
    from clearhead.decoding.translator import Translator
    from clearhead.inspection.heads import Head, heads_off
    from clearhead.inspection.recording import record_attention
    from clearhead.inspection.sentence import Inspection
    from clearhead.models.bert import BERT
    from clearhead.models.gpt import GPT
    from clearhead.models.llama import LLaMA
    from clearhead.models.transformer import Transformer
    from clearhead.text.tokenizers import Tokenizer

__version__ = "0.1.0"

__all__ = [
    "BERT",
    "GPT",
    "ClearheadError",
    "ConfigError",
    "DataError",
    "DecodingOptions",
    "GenerationOptions",
    "Head",
    "Inspection",
    "LLaMA",
    "ModelConfig",
    "RunError",
    "TextEncoder",
    "TextGenerator",
    "Tokenizer",
    "Transformer",
    "Translator",
    "__version__",
    "heads_off",
    "load",
    "record_attention",
]

_HOMES = {
    "BERT": "clearhead.models.bert",
    "GPT": "clearhead.models.gpt",
    "GenerationOptions": "clearhead.decoding.generation_options",
    "LLaMA": "clearhead.models.llama",
    "TextEncoder": "clearhead.decoding.encoder",
    "TextGenerator": "clearhead.decoding.generator",
    "DecodingOptions": "clearhead.decoding.options",
    "Head": "clearhead.inspection.heads",
    "Inspection": "clearhead.inspection.sentence",
    "ModelConfig": "clearhead.config",
    "Tokenizer": "clearhead.text.tokenizers",
    "Transformer": "clearhead.models.transformer",
    "Translator": "clearhead.decoding.translator",
    "heads_off": "clearhead.inspection.heads",
    "load": "clearhead.decoding.loading",
    "record_attention": "clearhead.inspection.recording",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its home at its first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
