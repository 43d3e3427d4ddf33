"""What encoded pairs and documents have in common: a folder that says what it was made of, and mapped arrays."""

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError, RunError
from clearhead.text.atomic_folder import publish, temporary_folder_beside

DESCRIPTION = "corpus.json"
OFFSET_TYPE = "<i8"

Ids = NDArray[np.unsignedinteger[Any]]


def build(directory: Path, made_of: dict[str, Any], write: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The description of the cache in `directory`, which `write` makes unless one is there that was made of the same.

    `write` is given an empty folder and returns the description; the folder appears complete or not at all, and several
    processes may build it at once.

    Raises:
        RunError: `directory` holds something else, or can't be written.
    """
    if (existing := _made_of(directory, made_of)) is not None:
        return existing
    if directory.exists() and any(directory.iterdir()) and not (directory / DESCRIPTION).exists():
        raise RunError(f"{directory} holds other files: name an empty or new folder for the encoded corpus")
    try:
        with temporary_folder_beside(directory) as temporary:
            text = json.dumps({"recipe": made_of, **write(temporary)}, ensure_ascii=False, indent=1)
            (temporary / DESCRIPTION).write_text(text, encoding="utf-8")
            publish(temporary, directory, is_current=lambda: _made_of(directory, made_of) is not None)
    except OSError as error:  # the readers' own are DataErrors already
        raise RunError(f"{directory}: can't write the encoded corpus: {error.strerror or error}") from error
    return description(directory)


def description(directory: Path) -> dict[str, Any]:
    """What a cache says of itself; empty if there is none."""
    try:
        found = json.loads((directory / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _made_of(directory: Path, made_of: dict[str, Any]) -> dict[str, Any] | None:
    """The description of a whole cache that was made of the same; `None` if there is no such."""
    found = description(directory)
    try:
        if found.get("recipe") == made_of:
            for side in ("source", "target", "text"):
                if side in found:
                    map_side(directory, side, found)
            return found
    except (KeyError, TypeError, ValueError, OSError):
        pass
    return None


def broken(directory: Path, error: Exception) -> RunError:
    """The error for a folder that holds no cache, or a broken one."""
    return RunError(
        f"{directory}: no encoded corpus, or a broken one ({error}); remove the folder to have it built again"
    )


def map_side(directory: Path, side: str, found: dict[str, Any]) -> tuple[Ids, NDArray[np.int64]]:
    """Map one side's ids and offsets; an array of another size than was written is a `ValueError`."""
    expected = {
        f"{side}.ids": (np.dtype(found[side]["type"]), found[side]["ids"]),
        f"{side}.offsets": (np.dtype(OFFSET_TYPE), found[side].get("texts", found.get("pairs")) + 1),
    }
    arrays = []
    for name, (kind, count) in expected.items():
        size = (directory / name).stat().st_size
        if size != kind.itemsize * count:
            raise ValueError(f"{name} has {size:,} bytes instead of {kind.itemsize * count:,}")
        arrays.append(np.memmap(directory / name, dtype=kind, mode="r"))
    return arrays[0], arrays[1]


def file_states(paths: Iterable[Path], name: str) -> list[list[Any]]:
    """What tells a changed file, without reading it: path, size and time of change. Raises `DataError`."""
    try:
        states = [(str(path.absolute()), path.stat()) for path in paths]
    except (OSError, ValueError) as error:
        raise DataError(f"{name}: {error}") from error
    return [[path, state.st_size, state.st_mtime_ns] for path, state in states]


def id_type(vocab_size: int) -> str:
    """The smallest little-endian NumPy type that holds every id of a vocabulary."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


class SideWriter:
    """Appends texts' ids to `SIDE.ids`, and where the next text begins to `SIDE.offsets`."""

    def __init__(self, directory: Path, side: str, vocab_size: int) -> None:
        self.type = id_type(vocab_size)
        self.id_count = self.text_count = 0
        self._ids: BinaryIO = (directory / f"{side}.ids").open("wb")
        self._offsets: BinaryIO = (directory / f"{side}.offsets").open("wb")
        self._offsets.write(np.zeros(1, OFFSET_TYPE).tobytes())

    def append(self, texts: Sequence[list[int]], *, end: tuple[int, ...] = ()) -> None:
        """Write the ids of several texts, `end` behind each."""
        lengths = np.array([len(ids) + len(end) for ids in texts], OFFSET_TYPE)
        flat = chain.from_iterable(chain(ids, end) for ids in texts)
        self._ids.write(np.fromiter(flat, self.type, count=int(lengths.sum())).tobytes())
        self._offsets.write((self.id_count + np.cumsum(lengths, dtype=OFFSET_TYPE)).tobytes())
        self.id_count += int(lengths.sum())
        self.text_count += len(texts)

    def __enter__(self) -> "SideWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._ids.close()
        self._offsets.close()
