"""A training run from recipe to finished run folder: what `clearhead train` does, in the order in which it happens."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

import torch

from clearhead.device import resolve_device
from clearhead.errors import ConfigError, RunError
from clearhead.models.making import make_model
from clearhead.recipe import Recipe, TrainingSection
from clearhead.run_folder import RunFolder
from clearhead.training.averaging import choose_weights
from clearhead.training.metrics_log import MetricsLog
from clearhead.training.objectives import make_objective
from clearhead.training.progress import Progress, format_seconds, make_progress
from clearhead.training.start import load_start, start_folder, take_over
from clearhead.training.stopping import StopRequested, StopSignals
from clearhead.training.trainer import Trainer

CHANGEABLE = {("run", "dir"), ("data", "root"), ("model", "start_from")}
"""What may differ in a resumed run; and all of `[training]` but the optimizer, and `[decoding]`."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    folder: RunFolder
    summary: dict[str, Any]
    """As in `summary.json`; empty if a signal ended the training."""
    stopped_by: int | None = None
    """The number of the signal that ended it before its time."""


def train(
    recipe: Recipe, *, resume: bool = False, overwrite: bool = False, progress: Progress | None = None
) -> Outcome:
    """Train what a recipe says, into its run folder; on one device the result is a function of the recipe alone.

    `resume` goes on where a stopped run was last saved, with the same result as if it had never stopped; `overwrite`
    begins anew in a folder that holds a run. After Ctrl-C or SIGTERM the state is saved, and `Outcome.stopped_by` set.

    Raises `ConfigError`, `DataError` for wrong recipes and files; `RunError` when the folder holds a run already, the
    disk is full, memory runs out, or the training fails.
    """
    if recipe.run.dir is None:
        raise ConfigError("the recipe names no run folder; set run.dir")
    folder = RunFolder(recipe.run.dir)
    progress = progress or make_progress()
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        with folder.locked():
            return _train(recipe, folder, resume=resume, overwrite=overwrite, progress=progress)
    except OSError as error:
        place = error.filename or folder
        raise RunError(f"{place}: {error.strerror or error}; correct it or make room, then --resume") from None
    finally:
        progress.close()


def _train(recipe: Recipe, folder: RunFolder, *, resume: bool, overwrite: bool, progress: Progress) -> Outcome:
    device = prepare_device(recipe.training, progress)
    prepare_folder(recipe, folder, resume=resume, overwrite=overwrite)
    objective = make_objective(recipe, folder, device, progress.message)
    torch.manual_seed(recipe.run.seed)
    folder.write_config(objective.config)
    model = make_model(objective.config).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    progress.message(f"model: {parameters:,} parameters, on {device} with {torch.get_num_threads()} threads")

    with StopSignals() as stop:
        trainer = Trainer(recipe, folder, objective, model, device=device, progress=progress, stop=stop)
        if not (resume and _goes_on(trainer, progress)):
            load_start(recipe, model)
        summary = folder.read_summary()
        if summary and summary["update"] == trainer.state.update and (reason := trainer.reason_to_end()):
            progress.message(
                f"this run has ended: {reason}. To go on, raise the limit: --resume --set training.updates=…"
            )
            return Outcome(folder, summary)
        folder.summary.unlink(missing_ok=True)
        trainer.try_largest_batch()
        board = folder.path / "tensorboard" if recipe.training.tensorboard else None
        state = trainer.state
        with MetricsLog(folder.metrics, lines=state.log_lines, tensorboard=board, update=state.update) as log:
            try:
                reason = trainer.run(log)
                progress.message(f"training ends: {reason}")
                summary = choose_weights(trainer, log, reason, progress.message)
            except StopRequested as stopped:
                progress.message(
                    f"stopped by {stopped} at update {state.update:,}, all saved; "
                    f"to go on: clearhead train {folder} --resume"
                )
                return Outcome(folder, {}, stopped_by=int(stopped.number))
    folder.write_summary(summary)
    value = "not finite" if summary["value"] is None else f"{summary['value']:.4g}"
    progress.message(
        f"{folder.model}: {summary['weights']}, {summary['metric']} {value} on the validation pairs, "
        f"after {format_seconds(summary['seconds'])}"
    )
    return Outcome(folder, summary)


def prepare_device(options: TrainingSection, progress: Progress) -> torch.device:
    """The device of a recipe, its threads set. Raises `ConfigError` for what this machine can't do."""
    device = resolve_device(options.device)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if device.type == "cpu" and options.precision == "bfloat16":
        progress.message("bfloat16 on the CPU works, but most CPUs are slower in it than in float32")
    if device.type == "cpu" and options.compile and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise ConfigError("training.compile = true needs a C++ compiler on the CPU (c++, g++, clang++), and finds none")
    return device


def prepare_folder(recipe: Recipe, folder: RunFolder, *, resume: bool, overwrite: bool) -> None:
    """Write the resolved recipe into its run folder. Raises `RunError` rather than harm a run."""
    if resume and folder.recipe.exists():
        _require_same_run(folder.read_recipe(), recipe, folder)
    elif not resume:
        if folder.holds_run() and not overwrite:
            raise RunError(
                f"{folder} already holds a run. Go on with it: --resume; begin anew: --overwrite (deletes it); "
                "or choose another folder: --set run.dir=…"
            )
        if recipe.start_from is not None:
            start_folder(recipe)  # before anything is deleted
        folder.clear()
    folder.remove_leftovers()
    if recipe.start_from is not None and not (resume and folder.recipe.exists()):
        take_over(recipe, folder)
    folder.write_recipe(_from_anywhere(recipe))


def _from_anywhere(recipe: Recipe) -> Recipe:
    """The recipe with paths that don't depend on where it is resumed."""
    data = recipe.data.model_copy(update={"root": recipe.data.root.absolute()})
    start = {} if recipe.start_from is None else {"start_from": str(recipe.start_from.absolute())}
    return recipe.model_copy(update={"data": data, "model": {**recipe.model, **start}})


def _require_same_run(old: Recipe, new: Recipe, folder: RunFolder) -> None:
    """What a run is made of can't change while it is resumed. Raises `RunError` naming the first such key."""
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    sections = ["run", "data", "tokenizer", "model", "training"]
    if new.start_from is not None and "tokenizer" not in new.model_fields_set:
        sections.remove("tokenizer")  # it came with the weights
    for section in sections:
        for key in before[section].keys() | after[section].keys():
            if (section, key) in CHANGEABLE or (section == "training" and key != "optimizer"):
                continue
            was, now = before[section].get(key), after[section].get(key)
            if was != now:
                raise RunError(
                    f"{section}.{key} is {now!r}, but the run in {folder} was begun with {was!r}; "
                    "a resumed run can't change it: begin anew with --overwrite, or choose another run.dir"
                )


def _goes_on(trainer: Trainer, progress: Progress) -> bool:
    """Whether there was a checkpoint to go on from."""
    if trainer.resume():
        progress.message(f"going on at update {trainer.state.update:,}")
        return True
    progress.message("nothing was saved yet, so the run begins at its beginning")
    return False
