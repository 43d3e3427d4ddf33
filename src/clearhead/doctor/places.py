"""Where in the code something is done: the lines that a finding points to."""

from __future__ import annotations

import inspect
import linecache
import sys
from pathlib import Path
from types import FrameType

from torch import nn

LIBRARIES = ("torch", "jaxtyping", "beartype")
OWN = str(Path(__file__).parent)
PLANTED = str(Path(__file__).parent / "mistakes")


def calling_line() -> str:
    """The innermost line that is neither torch's nor the doctor's own: `file:line: code`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if _is_own(file):
            frame = frame.f_back
            continue
        if not _is_library(file):
            return f"{shorten(file)}:{frame.f_lineno}: {linecache.getline(file, frame.f_lineno).strip()}"
        frame = frame.f_back
    return ""


def _is_own(file: str) -> bool:
    return (file.startswith(OWN) and not file.startswith(PLANTED)) or file.startswith("<")


def _is_library(file: str) -> bool:
    return any(f"/site-packages/{name}/" in file.replace("\\", "/") for name in LIBRARIES)


def place_of(thing: object) -> str:
    """Where a function, a class or a module's class is written: `file:line: name`."""
    if isinstance(thing, nn.Module):
        thing = type(thing).forward
    thing = inspect.unwrap(getattr(thing, "func", thing))  # type: ignore[arg-type]
    try:
        file = inspect.getsourcefile(thing)  # type: ignore[arg-type]
        _, line = inspect.getsourcelines(thing)  # type: ignore[arg-type]
    except (TypeError, OSError):
        return ""
    return f"{shorten(file or '?')}:{line}: {getattr(thing, '__qualname__', thing)}"


def shorten(file: str) -> str:
    """A path from the working directory on, or from the package on."""
    path = Path(file)
    for root in (Path.cwd(), *map(Path, sys.path)):
        if str(root) not in ("", ".", "/") and path.is_relative_to(root):
            return str(path.relative_to(root))
    return str(path)


def places(*things: object) -> tuple[str, ...]:
    """The places that can be found, each once."""
    found = [thing if isinstance(thing, str) else place_of(thing) for thing in things if thing is not None]
    return tuple(dict.fromkeys(place for place in found if place))
