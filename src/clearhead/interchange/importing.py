"""From a model's files to a run folder, and back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, RunError
from clearhead.interchange.gguf_file import read_gguf
from clearhead.interchange.hugging_face import read_folder, write_folder
from clearhead.interchange.llama2c import read_llama2c
from clearhead.interchange.model import ForeignModel
from clearhead.interchange.sentence_pieces import read_sentencepiece_model
from clearhead.models.making import make_model_of, map_model
from clearhead.models.transformer import parameter_names
from clearhead.run_folder import FOREIGN_TOKENIZER_FILES, Imported, RunFolder, write_atomically, write_text_atomically
from clearhead.text.control import Control


def import_model(source: Path, run: Path, *, tokenizer: Path | None = None, overwrite: bool = False) -> RunFolder:
    """Read a folder of Hugging Face, a GGUF file or a file of llama2.c, and write a run folder.

    Raises `ConfigError` or `RunError` when it isn't understood whole; nothing is written then.
    """
    folder = RunFolder(run)
    if folder.path.exists() and any(folder.path.iterdir()) and not (overwrite and folder.imported.exists()):
        hint = ", or add --overwrite" if folder.imported.exists() else ""
        raise ConfigError(f"{folder}: there is something in it already; choose another --to{hint}")
    model = read_model(source, tokenizer)
    make_model_of(model.config, model.weights, origin=str(source))
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.clear()
    write_weights(model, folder)
    write_tokenizer(model, folder)
    folder.write_config(model.config)
    folder.write_imported(Imported(family=model.family, source=source.name, control=model.control.to_dict()))
    return folder


def read_model(source: Path, tokenizer: Path | None = None) -> ForeignModel:
    """The model of a folder or a file, whichever it is."""
    if not source.exists():
        raise RunError(f"{source}: no such file or folder")
    if source.is_dir():
        if tokenizer is not None:
            raise ConfigError(f"--tokenizer {tokenizer}: a folder has its own; that is for files of llama2.c")
        return read_folder(source)
    if source.suffix == ".gguf":
        return read_gguf(source)
    if source.suffix == ".bin":
        return read_llama2c(source, tokenizer)
    raise ConfigError(f"{source}: give a folder with a config.json, a .gguf file or a .bin file of llama2.c")


def write_weights(model: ForeignModel, folder: RunFolder) -> None:
    """Our parameters by our names."""
    from safetensors.torch import save_file

    weights = {name: tensor.contiguous() for name, tensor in model.weights.items()}
    write_atomically(folder.model, lambda path: save_file(weights, path))


def write_tokenizer(model: ForeignModel, folder: RunFolder) -> None:
    """The tokenizer's files as they came, or the one that was made from another form."""
    for name, path in model.tokenizer_files.items():
        shutil.copyfile(path, folder.path / name)
    made = model.tokenizer_json
    if made is None and "tokenizer.model" in model.tokenizer_files and not folder.shared_tokenizer.exists():
        made = read_sentencepiece_model(model.tokenizer_files["tokenizer.model"], model.control)
    if made is not None:
        write_text_atomically(folder.shared_tokenizer, made)


def export_model(run: Path, target: Path, *, family: str | None = None) -> Path:
    """Write a run's model as `transformers` reads it, with the tokenizer's files if it came with such.

    Raises `ConfigError` for a model that no family there has.
    """
    folder = RunFolder(run).require()
    if target.exists() and any(target.iterdir()):
        raise ConfigError(f"{target}: there is something in it already; choose another --output")
    config: ModelConfig = folder.read_config()
    imported = folder.read_imported() if folder.imported.exists() else None
    fields = folder.read_control()
    control = Control() if fields is None else Control.from_dict(fields)
    family = family or (imported.family if imported else None)
    weights = {name: parameter.detach() for name, parameter in parameter_names(map_model(config, folder.model)).items()}
    write_folder(target, config, weights, control, family)
    if fields is not None:
        for name in FOREIGN_TOKENIZER_FILES:
            if (folder.path / name).exists():
                shutil.copyfile(folder.path / name, target / name)
        if imported is None and not (target / "tokenizer_config.json").exists() and folder.shared_tokenizer.exists():
            write_tokenizer_config(target, control)
    return target


def write_tokenizer_config(target: Path, control: Control) -> None:
    """Name the control tokens of a tokenizer that was made here, as `transformers` wants to be told."""
    import tokenizers

    name = tokenizers.Tokenizer.from_file(str(target / "tokenizer.json")).id_to_token
    ids = {"bos": control.start, "eos": next(iter(control.end), None), "pad": control.padding,
           "unk": control.unknown, "mask": control.mask}  # fmt: skip
    named = {f"{kind}_token": name(id) for kind, id in ids.items() if id is not None}
    fields = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    write_text_atomically(target / "tokenizer_config.json", json.dumps(fields, indent=2) + "\n")
