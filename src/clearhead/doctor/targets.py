"""What can be examined: a run folder, a Hugging Face model folder, `module:function`, or a `Patient`."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from clearhead.doctor.assertions import as_patient
from clearhead.doctor.catalogue import run_checks
from clearhead.doctor.finding import Finding, Report
from clearhead.doctor.patient import Patient, guess_patient
from clearhead.errors import ConfigError, RunError
from clearhead.run_folder import RunFolder

Target = str | Path | nn.Module | Callable[[], nn.Module] | Patient


def examine(
    target: Target,
    *,
    checks: Sequence[str] = (),
    training: bool = True,
    on_finding: Callable[[Finding], None] | None = None,
    **adapter: Any,
) -> Report:
    """Examine a model for the classic mistakes.

    Args:
        target: a run folder, a Hugging Face model folder, `module:function` that returns a `torch.nn.Module` or a
            `Patient`; or one of these themselves.
        checks: the short names of some checks only.
        training: also those that take training steps.
        on_finding: called with each finding as soon as it is there.
        adapter: fields of `Patient` that say more of the model, such as `kind`, `vocabulary`, `call`.

    Raises:
        ConfigError: the target can't be made or called, or a check isn't known.
        RunError: the folder is neither a run nor a Hugging Face model.
    """
    patient = find_patient(target, **adapter)
    return run_checks(patient, only=checks, training=training, on_finding=on_finding)


def find_patient(target: Target, **adapter: Any) -> Patient:
    """The patient that a target means. Raises as `examine`."""
    if not isinstance(target, str | Path):
        return as_patient(target, **adapter)
    path = Path(target)
    if path.is_dir():
        return folder_patient(path)
    if ":" in str(target):
        return function_patient(str(target), **adapter)
    raise RunError(f"{target}: no such folder, and no module:function either")


def folder_patient(path: Path) -> Patient:
    """A run folder or a Hugging Face folder."""
    if (path / "recipe.toml").exists() or (path / "imported.json").exists():
        from clearhead.doctor.one_sided_patient import one_sided_patient
        from clearhead.doctor.run_patient import run_patient

        folder = RunFolder(path)
        if folder.config.exists() and folder.read_config().architecture != "encoder-decoder":
            return one_sided_patient(folder)
        if not folder.recipe.exists():
            raise RunError(f"{path}: an imported model; examine the folder that it was imported from instead")
        return run_patient(path)
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = {}
    if isinstance(config, dict) and "model_type" in config:
        from clearhead.doctor.hugging_face import hugging_face_patient

        return hugging_face_patient(path)
    raise RunError(
        f"{path}: neither a run folder (no recipe.toml) nor a Hugging Face model (no config.json with model_type)"
    )


def function_patient(name: str, **adapter: Any) -> Patient:
    """What `module:function` builds; modules of the working directory are found too."""
    module_name, _, function_name = name.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigError(f"{name}: {module_name or 'nothing'} can't be imported: {described(error)}") from error
    try:
        function = getattr(module, function_name)
    except AttributeError:
        raise ConfigError(f"{name}: {module_name} has no {function_name!r}") from None
    if isinstance(function, Patient):
        return as_patient(function, **adapter)
    if not callable(function):
        raise ConfigError(f"{name} is a {type(function).__name__}, not a function that builds a model")
    try:
        made = function()
    except Exception as error:
        raise ConfigError(f"{name} can't be called without arguments: {described(error)}") from error
    if isinstance(made, Patient):
        return as_patient(made, **adapter)
    return guess_patient(function, name=name, **adapter)


def described(error: Exception) -> str:
    """An error of the user's own code in one line, with the line of code that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if not frame.filename.startswith("<frozen")), None)
    where = "" if last is None or last.filename == __file__ else f" ({last.filename}:{last.lineno})"
    return f"{type(error).__name__}: {error}{where}"
