"""From a configuration to its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import assert_never

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.errors import RunError
from clearhead.models.bert import BERT
from clearhead.models.gpt import GPT
from clearhead.models.transformer import Transformer, require_weights
from clearhead.parts.positions import make_positions

AnyModel = Transformer | GPT | BERT


def make_model(config: ModelConfig) -> AnyModel:
    """The model of a configuration, with fresh weights."""
    match config.architecture:
        case "encoder-decoder":
            return Transformer(config)
        case "decoder":
            return GPT(config)
        case "encoder":
            return BERT(config)
        case _:
            assert_never(config.architecture)


def stacks_of(model: nn.Module) -> dict[str, nn.Module]:
    """The stacks of layers that a model has, by name: `encoder`, `decoder`, or both."""
    return {name: getattr(model, name) for name in ("encoder", "decoder") if hasattr(model, name)}


def make_model_of(config: ModelConfig, weights: dict[str, Tensor], *, origin: str) -> AnyModel:
    """The model of a configuration around weights that are there: they are not copied, and may be a mapped file.

    Raises `RunError` when a name or a shape differs.
    """
    with torch.device("meta"):
        model = make_model(config)
    require_weights(model, weights, origin=origin)
    rate = 0.0 if config.architecture == "encoder" else config.dropout
    model.positions = make_positions(replace(config, dropout=rate))  # what isn't saved has to be computed
    first_names = {id(parameter): name for name, parameter in model.named_parameters()}
    parameters = {name: nn.Parameter(tensor) for name, tensor in weights.items()}
    for name, placeholder in list(model.named_parameters(remove_duplicate=False)):
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, parameters[first_names[id(placeholder)]])  # what is tied stays tied
    return model


def map_model(config: ModelConfig, path: Path) -> AnyModel:
    """The model of a run folder's weights, mapped into memory: what isn't looked at isn't read.

    Raises `RunError` when the file is no such file, or a name or a shape differs.
    """
    try:
        stored = load_file(str(path))
    except FileNotFoundError:
        raise RunError(f"{path}: no such file") from None
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path}: not a readable safetensors file ({error})") from None
    return make_model_of(config, stored, origin=str(path))


def count_parameters(config: ModelConfig) -> int:
    """The number of a model's parameters, tied ones counted once; nothing is allocated."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in make_model(config).parameters())
