"""Reading a recipe: a TOML file, what the command line changes of it, and what is wrong with it."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from clearhead.errors import ConfigError
from clearhead.recipe.recipe import Recipe
from clearhead.toml import apply_override


def make_recipe(tables: Mapping[str, Any], *, origin: str = "recipe") -> Recipe:
    """Check the tables of a recipe and complete them with the defaults.

    Raises `ConfigError` with one line for each thing that is wrong; `origin` says where it was found.
    """
    try:
        recipe = Recipe.model_validate(tables)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(dict(item), origin) for item in error.errors())) from None
    try:
        if recipe.start_from is None:  # a wrong shape shows before any data is read
            recipe.model_shape(source_vocab=5, target_vocab=5)
        else:
            recipe.model_fields_given()
        _require_what_fits(recipe)
        if recipe.data.is_text:
            recipe = _with_plain_loss(recipe)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    return recipe


def _require_what_fits(recipe: Recipe) -> None:
    """Refuse keys that contradict each other. Raises `ConfigError`."""
    if recipe.data.is_text:
        kind, *_ = recipe.tokenizer.side("source")
        if kind == "word" or recipe.tokenizer.source or recipe.tokenizer.target:
            raise ConfigError("the tokenizer of a language model is one, and bpe, char or byte; set tokenizer.kind")
        longest, what = recipe.data.block_length, "a block of data.block_length"
    else:
        if recipe.model_fields_given().get("tied") == "all" and not recipe.tokenizer.shared and not recipe.start_from:
            raise ConfigError('model.tied = "all" needs one vocabulary for both sides; set tokenizer.shared = true')
        longest, what = recipe.data.max_length, "a pair of data.max_length"
    if longest > recipe.training.batch_tokens:
        raise ConfigError(
            f"training.batch_tokens = {recipe.training.batch_tokens} can't hold {what} = {longest} tokens; "
            "raise the one or lower the other"
        )


def _with_plain_loss(recipe: Recipe) -> Recipe:
    """A language model learns by the plain loss; the default of label smoothing is for pairs."""
    training = recipe.training
    if "label_smoothing" in training.model_fields_set and training.label_smoothing:
        raise ConfigError(
            f"training.label_smoothing = {training.label_smoothing}: a language model learns by the plain loss; set 0"
        )
    return recipe.model_copy(update={"training": training.model_copy(update={"label_smoothing": 0.0})})


def read_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a TOML file, and apply overrides of the form `section.key=value`, the value in TOML or a bare string.

    Raises `ConfigError` when the file is missing or no TOML, or a key or value is wrong.
    """
    path = Path(path)
    try:
        tables = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such recipe") from None
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    for override in overrides:
        apply_override(tables, override)
    run = tables.setdefault("run", {})
    if isinstance(run, dict):
        run.setdefault("dir", f"runs/{path.stem}")
    return make_recipe(tables, origin=str(path))


def _explain(error: dict[str, Any], origin: str) -> str:
    """One line for one of pydantic's errors: the key, what is wrong, and what was found."""
    *parents, key = error["loc"]
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        known = _known_keys(Recipe, parents)
        near = difflib.get_close_matches(str(key), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
        return f"{origin}: unknown key {name}; {hint}"
    if error["type"] == "missing":
        return f"{origin}: {name} is missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    found = error["input"]
    return f"{origin}: {name}: {message}" + ("" if isinstance(found, dict) else f" (found {found!r})")


def _known_keys(section: Any, parents: Sequence[str | int]) -> list[str]:
    """The keys a table may have, found by walking from `section` along the names of an error's place."""
    for part in parents:
        if isinstance(part, str):
            section = section.model_fields[part].annotation
        while not isinstance(section, type) or not issubclass(section, BaseModel):
            section = next(arg for arg in get_args(section) if arg is not type(None))  # into tuple[...] and ... | None
    return list(section.model_fields)
