"""Folders in the layout of Hugging Face: `config.json` and `*.safetensors`, in one file or in shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, RunError
from clearhead.interchange.attributes import Attributes
from clearhead.interchange.families import find_family
from clearhead.interchange.families.family import Family
from clearhead.interchange.families.marian import OWN_ORDER
from clearhead.interchange.model import ForeignModel
from clearhead.interchange.rows import Tensors
from clearhead.run_folder import FOREIGN_TOKENIZER_FILES
from clearhead.text.control import Control

INDEX = "model.safetensors.index.json"


def read_folder(folder: Path) -> ForeignModel:
    """The model of a folder, its tensors mapped into memory.

    Raises `ConfigError` for a configuration that isn't understood whole, `RunError` for weights that don't fit it.
    """
    origin = folder / "config.json"
    values = read_json(origin)
    family = find_family(values.get("model_type"), origin=str(origin))
    tensors = family.with_prefix(read_tensors(folder))
    control = read_control(folder, values)
    their = Attributes(values, origin=str(origin))
    config = family.read_config(their, tensors, control)
    their.require_all_read()
    weights = family.table(config, control).read(tensors, origin=str(folder))
    # Half precision becomes float32: what is computed here is computed in that.
    weights = {name: tensor.float() for name, tensor in weights.items()}
    return ForeignModel(family.name, config, weights, control, tokenizer_files(folder))


def read_tensors(folder: Path) -> Tensors:
    """All tensors of a folder. Raises `RunError` when there are none, or a shard is missing."""
    if (folder / INDEX).exists():
        shards = sorted({str(shard) for shard in read_json(folder / INDEX).get("weight_map", {}).values()})
        return {name: tensor for shard in shards for name, tensor in load(folder / shard).items()}
    if (folder / "model.safetensors").exists():
        return load(folder / "model.safetensors")
    if (folder / "pytorch_model.bin").exists():
        return load_pickled(folder / "pytorch_model.bin")
    raise RunError(f"{folder}: no model.safetensors, {INDEX} or pytorch_model.bin in it")


def load(path: Path) -> Tensors:
    """The tensors of one file, mapped. Raises `RunError` when it is no such file."""
    try:
        return load_file(str(path))
    except FileNotFoundError:
        raise RunError(f"{path}: no such file") from None
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path}: not a readable safetensors file ({error})") from None


def load_pickled(path: Path) -> Tensors:
    """The tensors of torch's older format; torch unpickles nothing but tensors here."""
    try:
        return dict(torch.load(path, map_location="cpu", weights_only=True, mmap=True))
    except Exception as error:  # what an unpickler can raise has no common base
        raise RunError(f"{path}: not a readable file of weights ({error})") from None


def read_control(folder: Path, values: dict[str, Any]) -> Control:
    """The control tokens: from the configuration, from that of generation, and from the tokenizer's file."""
    generation = folder / "generation_config.json"
    values = {**values, **(read_json(generation) if generation.exists() else {})}
    named = named_tokens(folder)
    end = values.get("eos_token_id")
    is_translator = values.get("model_type") == "marian"
    return Control(
        start=values.get("decoder_start_token_id" if is_translator else "bos_token_id"),
        end=tuple(end) if isinstance(end, list) else () if end is None else (end,),
        padding=named.get("[PAD]", values.get("pad_token_id")),
        unknown=named.get("<unk>", named.get("[UNK]")),
        mask=named.get("[MASK]", named.get("<mask>")),
    )


def named_tokens(folder: Path) -> dict[str, int]:
    """Ids of the tokens that go by a name, as far as a file of the tokenizer tells."""
    found: dict[str, int] = {}
    if (folder / "vocab.json").exists():
        vocabulary = read_json(folder / "vocab.json")
        found |= {name: vocabulary[name] for name in ("<unk>", "<pad>", "</s>") if name in vocabulary}
    if (folder / "tokenizer.json").exists():
        added = read_json(folder / "tokenizer.json").get("added_tokens", [])
        found |= {token["content"]: token["id"] for token in added}
    return found


def tokenizer_files(folder: Path) -> dict[str, Path]:
    """The files of the tokenizer that a folder has."""
    return {name: folder / name for name in FOREIGN_TOKENIZER_FILES if (folder / name).exists()}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises `RunError` naming the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path}: no such file; is {path.parent} a model's folder?") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: can't be read: {error}") from None
    if not isinstance(content, dict):
        raise RunError(f"{path}: expected a JSON object")
    return content


def write_folder(
    folder: Path, config: ModelConfig, weights: Tensors, control: Control, family_name: str | None
) -> None:
    """Write a model as `transformers` reads it. Raises `ConfigError` for a model that none of its families has."""
    family = find_family(family_name or guess_family(config), origin="export")
    if family.name == "marian" and control == Control():
        control = OWN_ORDER
    attributes = {
        "model_type": family.name,
        "dtype": "float32",
        "bos_token_id": control.start if family.name != "marian" else None,
        "eos_token_id": control.end[0] if len(control.end) == 1 else list(control.end) or None,
        "pad_token_id": control.padding,
        **family.write_config(config, control),
    }
    tensors = their_tensors(family, config, weights, control)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(attributes, indent=2) + "\n", encoding="utf-8")


def their_tensors(family: Family, config: ModelConfig, weights: Tensors, control: Control) -> Tensors:
    """The tensors under their names; a body without heads was saved alone."""
    tensors = family.table(config, control).write(weights)
    if config.architecture == "encoder" and config.heads in ("none", "pooler"):
        tensors = {name.removeprefix(family.base_prefix): tensor for name, tensor in tensors.items()}
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def guess_family(config: ModelConfig) -> str:
    """The family that a model trained here would belong to."""
    if config.architecture == "encoder-decoder":
        return "marian"
    if config.architecture == "encoder":
        return "bert"
    return "llama" if config.positions == "rotary" else "gpt2"


def require_export_kind(kind: str) -> None:
    """Refuse a layout that isn't known."""
    if kind != "hf":
        raise ConfigError(f"--to {kind}: choose hf")
