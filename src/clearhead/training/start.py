"""Beginning with the weights of another run, trained here or imported: `[model] start_from`."""

from __future__ import annotations

import shutil

from torch import nn

from clearhead.errors import ConfigError, RunError
from clearhead.models.transformer import load_weights
from clearhead.recipe import Recipe
from clearhead.run_folder import FOREIGN_TOKENIZER_FILES, RunFolder


def take_over(recipe: Recipe, folder: RunFolder) -> None:
    """Copy shape and tokenizers of the run that the recipe starts from into its run folder.

    The recipe's own fields of the model change the shape; with a `[tokenizer]` of its own it gets no tokenizers.
    Raises `ConfigError` and `RunError` for a run that can't be started from.
    """
    origin = start_folder(recipe)
    fields = {**origin.read_config().to_dict(), **recipe.model_fields_given()}
    folder.write_config(recipe.checked_shape(fields))
    if "tokenizer" in recipe.model_fields_set:
        return
    own = {path.name for path in origin.tokenizer_paths()}
    if not all((origin.path / name).exists() for name in own):
        raise RunError(f"{origin}: has no {' and '.join(sorted(own))} to start with; give the recipe a [tokenizer]")
    if (control := origin.read_control()) is not None:
        own |= set(FOREIGN_TOKENIZER_FILES)
        folder.write_control(control)
    for name in sorted(name for name in own if (origin.path / name).exists()):
        shutil.copyfile(origin.path / name, folder.path / name)


def load_start(recipe: Recipe, model: nn.Module) -> None:
    """Put the weights in place. Raises `RunError` when a name or a shape differs."""
    if recipe.start_from is not None:
        try:
            load_weights(model, start_folder(recipe).model)
        except RunError as error:
            raise RunError(f"[model] start_from: {error}") from None


def start_folder(recipe: Recipe) -> RunFolder:
    """The run that the recipe starts from. Raises `ConfigError` or `RunError` if it can't be."""
    assert recipe.start_from is not None
    try:
        origin = RunFolder(recipe.start_from).require()
    except RunError as error:
        raise RunError(f"[model] start_from: {error}") from None
    if recipe.run.dir is not None and origin.path.resolve() == recipe.run.dir.resolve():
        raise ConfigError(f"[model] start_from = {str(origin)!r} is the run folder itself; choose another run.dir")
    if not origin.model.exists():
        raise RunError(f"[model] start_from: {origin} has no model.safetensors yet")
    return origin
