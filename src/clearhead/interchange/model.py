"""A model from elsewhere, in our words."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from clearhead.config import ModelConfig
from clearhead.interchange.rows import Tensors
from clearhead.text.control import Control


@dataclass(frozen=True)
class ForeignModel:
    """What an import has read."""

    family: str
    config: ModelConfig
    weights: Tensors
    """Our parameters by our names; tied ones once."""
    control: Control
    tokenizer_files: dict[str, Path] = field(default_factory=dict)
    """Files to copy, by the name that they are to have."""
    tokenizer_json: str | None = None
    """A tokenizer of the tokenizers library, where the file had one in another form."""
