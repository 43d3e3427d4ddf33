"""Checkpoints: the whole state of a training in one safetensors file, whole or absent.

A checkpoint holds the tensors `model.*`, `optimizer.*` and `random.*`, and in its header the `TrainingState` as JSON
and a checksum. It is written beside its place, synced and renamed, so a kill or a full disk leaves the previous one;
and one that is broken all the same is passed over for the one before it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from clearhead.errors import RunError
from clearhead.models.transformer import copy_weights, parameter_names
from clearhead.run_folder import write_atomically
from clearhead.training.optimizer import load_optimizer_tensors, optimizer_tensors
from clearhead.training.randomness import random_tensors, restore_random_tensors
from clearhead.training.state import TrainingState

FORMAT = "clearhead checkpoint 1"


class Checkpoints:
    """The checkpoints of a run, and the weights of its validations, in one directory.

    `checkpoint-0001500.safetensors` is all of update 1,500; `weights-0001500.safetensors` only the model's weights,
    kept for the best validation and for the last ones, which are averaged at the end.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def checkpoint_path(self, update: int) -> Path:
        """The checkpoint of an update."""
        return self.directory / f"checkpoint-{update:07}.safetensors"

    def weights_path(self, update: int) -> Path:
        """The weights kept of an update."""
        return self.directory / f"weights-{update:07}.safetensors"

    def updates(self) -> list[int]:
        """The updates of which there are checkpoints, oldest first."""
        return _updates(self.directory, "checkpoint")

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> None:
        """Write a checkpoint. Raises `OSError` when the disk is full; nothing is lost then."""
        tensors = {f"model.{name}": p.detach() for name, p in parameter_names(model).items()}
        tensors |= {f"optimizer.{name}": value for name, value in optimizer_tensors(optimizer, model).items()}
        tensors |= {f"random.{name}": value for name, value in random_tensors().items()}
        tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        header = {
            "format": FORMAT,
            "state": json.dumps(state.to_dict()),
            "checksum": str(_checksum(tensors[name] for name in sorted(tensors))),
        }
        write_safetensors(self.checkpoint_path(state.update), tensors, header)

    def load_newest(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, say: Callable[[str], None]
    ) -> TrainingState | None:
        """Put the newest whole checkpoint's state in place; `None` if there is no checkpoint.

        Broken ones are passed over with a message. Raises `RunError` if all are broken, or are of another model.
        """
        updates = self.updates()
        for update in reversed(updates):
            path = self.checkpoint_path(update)
            try:
                tensors, state = _read_checkpoint(path)
            except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
                say(f"{path} is broken ({error}); trying the one before it")
                continue
            copy_weights(model, _under("model.", tensors), origin=str(path))
            try:
                load_optimizer_tensors(optimizer, model, _under("optimizer.", tensors))
            except (KeyError, ValueError) as error:
                raise RunError(f"{path}: lacks the optimizer's state of {error}") from None
            restore_random_tensors(_under("random.", tensors))
            return state
        if updates:
            raise RunError(
                f"{self.directory}: every checkpoint is broken ({len(updates)} of them); start anew with --overwrite"
            )
        return None

    def save_weights(self, model: nn.Module, update: int) -> None:
        """Keep the model's weights as those of an update. Raises `OSError` when the disk is full."""
        save_weights_atomically(model, self.weights_path(update))

    def prune(self, *, keep: int, keep_weights: Iterable[int]) -> None:
        """Delete all but the newest `keep` checkpoints, and all weights but those of the given updates."""
        for update in self.updates()[:-keep]:
            self.checkpoint_path(update).unlink(missing_ok=True)
        for update in set(_updates(self.directory, "weights")) - set(keep_weights):
            self.weights_path(update).unlink(missing_ok=True)

    def delete_after(self, update: int) -> None:
        """Delete checkpoints newer than that of `update`: broken ones, which a resumed run passed over."""
        for newer in self.updates():
            if newer > update:
                self.checkpoint_path(newer).unlink(missing_ok=True)


def save_weights_atomically(model: nn.Module, path: Path) -> None:
    """Write the weights under their plain names, tied ones once. Raises `OSError` when the disk is full."""
    tensors = {name: p.detach().cpu().contiguous() for name, p in parameter_names(model).items()}
    write_safetensors(path, tensors, {"format": "pt"})


def write_safetensors(path: Path, tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """`save_file`, atomically, and with an `OSError` if the file can't be written."""

    def write(temporary: Path) -> None:
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(tensors, str(temporary), metadata=header)
        except SafetensorError as error:
            raise OSError(f"{path}: {error}") from None
        temporary.chmod(mode)  # the library's files can be read by their owner only; a run is there to be shared

    write_atomically(path, write)


def average_weights(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of each weight over several files, summed in float64. Raises `RunError` for a broken file."""
    sums: dict[str, Tensor] = {}
    count = 0
    for count, path in enumerate(paths, start=1):  # noqa: B007 (count is used behind the loop)
        try:
            with safe_open(str(path), framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (no mapping)
                    tensor = file.get_tensor(name).double()
                    sums[name] = sums[name] + tensor if name in sums else tensor
        except (SafetensorError, OSError) as error:
            raise RunError(f"{path}: not a readable safetensors file ({error})") from None
    return {name: (total / count).float() for name, total in sums.items()}


def _read_checkpoint(path: Path) -> tuple[dict[str, Tensor], TrainingState]:
    """Raises `SafetensorError`, `OSError`, `KeyError`, `TypeError` or `ValueError` for a file that is no whole one."""
    with safe_open(str(path), framework="pt") as file:
        header = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    if header.get("format") != FORMAT:
        raise ValueError(f"its format is {header.get('format')!r}, not {FORMAT!r}")
    if int(header["checksum"]) != _checksum(tensors.values()):
        raise ValueError("its checksum is wrong")
    return tensors, TrainingState.from_dict(json.loads(header["state"]))


def _checksum(tensors: Iterable[Tensor]) -> int:
    checksum = 0
    for tensor in tensors:
        checksum = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, checksum)
    return checksum


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _updates(directory: Path, kind: str) -> list[int]:
    pattern = re.compile(rf"{kind}-(\d+)\.safetensors")
    return sorted(int(match[1]) for path in directory.iterdir() if (match := pattern.fullmatch(path.name)))
