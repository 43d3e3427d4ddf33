"""What a family has to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interchange.attributes import Attributes
from clearhead.interchange.rows import Table, Tensors
from clearhead.text.control import Control

GELUS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "silu": "silu",
         "swish": "silu"}  # fmt: skip
"""Names of activations there, and here."""
THEIR_GELUS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}
"""The other way round; where there are two names, the usual one."""


@dataclass(frozen=True)
class Family:
    """A `model_type` of transformers."""

    name: str
    read_config: Callable[[Attributes, Tensors, Control], ModelConfig]
    """Their attributes (and the names of their tensors, which tell what heads there are) as our configuration."""
    write_config: Callable[[ModelConfig, Control], dict[str, Any]]
    """The inverse: all attributes that matter. Raises `ConfigError` for a model that the family doesn't have."""
    table: Callable[[ModelConfig, Control], Table]
    """Their names and ours, for a model of this shape."""
    base_prefix: str
    """What stands before the names of the body, unless the body was saved alone."""
    base_marker: str
    """A name of the body, without the prefix."""
    reads_start: bool = False
    """Texts begin with the start token, unless the tokenizer's file says otherwise."""

    def with_prefix(self, tensors: Tensors) -> Tensors:
        """The tensors under the names that they have in a model with a head."""
        if self.base_marker not in tensors:
            return tensors
        return {self.base_prefix + name: tensor for name, tensor in tensors.items()}
