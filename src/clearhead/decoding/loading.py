"""From a run folder to what one does with its model."""

from __future__ import annotations

from pathlib import Path

from safetensors import safe_open
from torch import nn

from clearhead.decoding.encoder import TextEncoder
from clearhead.decoding.generator import TextGenerator
from clearhead.decoding.layout import lay_out_for_few_rows
from clearhead.decoding.native_layers import run_natively
from clearhead.decoding.packed_linear import PackedLinear
from clearhead.decoding.translator import Translator, require_room
from clearhead.device import resolve_device
from clearhead.errors import ConfigError, RunError
from clearhead.models.bert import BERT
from clearhead.models.gpt import GPT
from clearhead.models.making import map_model
from clearhead.run_folder import RunFolder
from clearhead.text.loading import load_language_tokenizer
from clearhead.text.pretrained import PretrainedTokenizer


def load(
    run: Path | str, *, device: str = "auto", precision: str = "float32"
) -> Translator | TextGenerator | TextEncoder:
    """Load a run folder: a `Translator`, or, for a model with one side, a `TextGenerator` or a `TextEncoder`.

    Args:
        run: the folder.
        device: where to run the model.
        precision: of matrix products on a CPU: "float32", "int16" or "int8" (`Translator.load`).

    Raises:
        RunError: the folder holds no model that is ready to use.
        ConfigError: the machine can't multiply in that precision.
    """
    folder = RunFolder(run).require()
    if folder.read_config().architecture == "encoder-decoder":
        return Translator.load(run, device=device, precision=precision)
    tokenizer = load_language_tokenizer(folder)
    model = map_model(folder.read_config(), folder.model)
    require_room(folder, folder.shared_tokenizer, tokenizer.vocab_size, model.config.target_vocab)
    model = model.to(resolve_device(device)).eval()
    lay_out_mapped(model, folder.model, precision)
    return TextGenerator(model, tokenizer) if isinstance(model, GPT) else encoder_of(model, tokenizer)


def lay_out_mapped(model: nn.Module, path: Path, precision: str = "float32") -> None:
    """`lay_out_for_few_rows` for the model of a mapped file, without having any matrix in memory twice.

    What was read of a mapping takes memory as long as there is the mapping. So each module's matrices are read from one
    of their own, which is given back at once; that of the model stays unread.
    """
    first_names = {id(parameter): name for name, parameter in model.named_parameters()}
    for module in [module for module in model.modules() if not isinstance(module, nn.Linear)]:
        for name, linear in list(module.named_children()):
            if type(linear) is not nn.Linear:
                continue
            unread = linear.weight
            with safe_open(str(path), framework="pt") as file:
                linear.weight = nn.Parameter(file.get_tensor(first_names[id(unread)]))
            holder = nn.ModuleDict({name: linear})
            lay_out_for_few_rows(holder, precision)
            laid_out = holder[name]
            if isinstance(laid_out, PackedLinear):  # what is multiplied is a copy
                laid_out.weight = unread
                laid_out.packed = laid_out.state()
            module.add_module(name, laid_out)
    run_natively(model)


def encoder_of(model: object, tokenizer: PretrainedTokenizer) -> TextEncoder:
    """The encoder around a BERT."""
    if not isinstance(model, BERT):
        raise RunError(f"no text encoder: {type(model).__name__}")
    return TextEncoder(model, tokenizer)


def load_generator(run: Path | str, *, device: str = "auto", precision: str = "float32") -> TextGenerator:
    """Load a model that goes on with texts. Raises `ConfigError` for another kind."""
    found = load(run, device=device, precision=precision)
    if not isinstance(found, TextGenerator):
        raise ConfigError(f"{run}: holds a {found.model.config.architecture}, which doesn't go on with texts")
    return found


def load_encoder(run: Path | str, *, device: str = "auto") -> TextEncoder:
    """Load a model that reads texts. Raises `ConfigError` for another kind."""
    found = load(run, device=device)
    if not isinstance(found, TextEncoder):
        raise ConfigError(f"{run}: holds a {found.model.config.architecture}, which has no vectors or masks")
    return found
