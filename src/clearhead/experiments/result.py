"""What every experiment takes and returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, TypeVar

T = TypeVar("T")

Cell = str | int | float
Answer = Literal["holds", "holds in part", "does not hold here"]


class Effort(IntEnum):
    """How much is measured: a few seconds for tests, under a minute for a reader, or more (`--full`)."""

    QUICK = 0
    NORMAL = 1
    FULL = 2

    def of(self, quick: T, normal: T, full: T) -> T:
        """The setting for this effort."""
        return (quick, normal, full)[self]


@dataclass(frozen=True)
class Table:
    """Measured numbers, and what their columns mean."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def column(self, name: str) -> list[Cell]:
        """All that stands below a heading. Raises `ValueError` for a heading there is not."""
        place = list(self.columns).index(name)
        return [row[place] for row in self.rows]


@dataclass(frozen=True)
class Chart:
    """Curves over one axis: points `(x, y)` by the name of their curve."""

    title: str
    x: str
    y: str
    curves: dict[str, Sequence[tuple[float, float]]]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Result:
    """What was measured, and what it says about the claim."""

    answer: Answer
    """Whether the claim held, computed from the numbers."""
    verdict: str
    """One sentence, with the numbers that it rests on."""
    tables: Sequence[Table]
    chart: Chart
    notes: Sequence[str] = field(default=())
    """How to read the tables, a sentence each."""


def judge(holds: bool, partly: bool = False) -> Answer:
    """The answer, by whether the claim holds and, if so, whether only in part."""
    if not holds:
        return "does not hold here"
    return "holds in part" if partly else "holds"


def power_of(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent `p` of `y = c * x**p`: the slope of the straight line through the logarithms (least squares)."""
    import numpy as np

    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
