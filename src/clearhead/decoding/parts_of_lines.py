"""Lines on their way to be translated, some at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from clearhead.errors import DataError

Item = TypeVar("Item")


def with_prefixes(lines: Iterable[str], prefixes: str | Iterable[str] | None) -> Iterator[tuple[str, str]]:
    """Each line and what its output begins with. Raises `DataError` when there are more of the ones than the others."""
    if prefixes is None or isinstance(prefixes, str):
        yield from zip(lines, itertools.repeat(prefixes or ""), strict=False)
        return
    for number, (line, prefix) in enumerate(itertools.zip_longest(lines, prefixes), start=1):
        if line is None or prefix is None:
            lone, lacking = ("prefix", "line") if line is None else ("line", "prefix")
            raise DataError(f"{lone} {number} has no {lacking}: there have to be as many prefixes as lines")
        yield line, prefix


def in_parts(items: Iterable[Item], most: int, must_wait: Callable[[], bool]) -> Iterator[list[Item]]:
    """What is there already, at most so many at a time."""
    part: list[Item] = []
    for item in items:
        part.append(item)
        if len(part) == most or must_wait():
            yield part
            part = []
    if part:
        yield part
