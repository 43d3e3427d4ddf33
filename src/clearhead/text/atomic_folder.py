"""A folder that appears complete or not at all."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ABANDONED_SECONDS = 3600


@contextmanager
def temporary_folder_beside(directory: Path) -> Iterator[Path]:
    """A new folder on the same disk, removed at the end unless it was moved by `publish`.

    What a killed process left behind is removed as well, once nothing in it has changed for an hour.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{directory.name}.building-"
    for other in directory.parent.glob(prefix + "*"):
        if _seconds_untouched(other) > ABANDONED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=directory.parent))
    try:
        temporary.chmod(0o755)  # mkdtemp's folders are closed to everybody else
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def publish(temporary: Path, directory: Path, *, is_current: Callable[[], bool]) -> None:
    """Give a complete folder its name, in the place of an older one.

    Args:
        temporary: the folder, on the same disk.
        directory: the name it is to have.
        is_current: whether what stands at `directory` is as good, since another process was faster: then that
            stays.
    """
    for path in temporary.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    for _ in range(10):
        try:
            temporary.rename(directory)
            return
        except OSError:
            if not directory.exists():
                raise
        if is_current():
            return
        # A folder can't be replaced in one step: out of the way with the old one. Whoever has mapped its
        # files keeps them.
        with temporary_folder_beside(directory) as aside:
            directory.rename(aside / "old")
    raise OSError(f"{directory} is replaced again and again by another process")


def _seconds_untouched(folder: Path) -> float:
    try:
        return time.time() - max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:  # its owner has just moved it
        return 0.0
