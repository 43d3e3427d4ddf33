"""A training's curves in the terminal: a line of bars each, with its first and its last value."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from clearhead.inspection.training_curves import Curve, Panel

BARS = "▁▂▃▄▅▆▇█"
CELLS = 11
NAME, VALUE = 11, 7
"""Cells that a curve's name and a value take at least, so that panels above each other line up."""
WIDTH = NAME + CELLS + 2 * VALUE + 3
GAP = 2
"""Two panels side by side are as wide as the usual terminal: 80 cells."""


def render_panels(panels: Sequence[Panel], *, width: int) -> RenderableType:
    """All panels, as many side by side as there is room for."""
    updates = [update for panel in panels for points in panel.curves.values() for update, _ in points]
    first, last = min(updates, default=0), max(updates, default=0)
    columns = max(1, (width + GAP) // (WIDTH + GAP))
    rows: list[RenderableType] = []
    for start in range(0, len(panels), columns):
        row = Table.grid(padding=(0, GAP, 0, 0))
        row.add_row(*(render_panel(panel, first=first, last=last) for panel in panels[start : start + columns]))
        rows += [row, ""]
    return Group(*rows[:-1])


def render_panel(panel: Panel, *, first: int, last: int) -> Table:
    """A line for each curve; all bars stand for the same updates, from `first` to `last`."""
    table = Table(
        title=panel.title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column(min_width=NAME, no_wrap=True)
    table.add_column(no_wrap=True, style="cyan")
    for heading in ("first", "last"):
        table.add_column(heading, justify="right", min_width=VALUE, no_wrap=True, header_style="dim")
    for name, points in panel.curves.items():
        bars = sparkline(points, first=first, last=last, cells=CELLS, log=panel.log)
        table.add_row(name, bars, short_number(points[0][1]), short_number(points[-1][1]))
    return table


def sparkline(curve: Curve, *, first: int, last: int, cells: int, log: bool = False) -> str:
    """The means of a curve's values in `cells` equal parts of the updates from `first` to `last`, as bars.

    The lowest bar is the curve's least mean, the highest its largest; `log` compares logarithms, of positive values. A
    part without a point is blank.
    """
    parts: list[list[float]] = [[] for _ in range(cells)]
    for update, value in curve:
        place = (update - first) * cells // max(1, last - first)
        parts[min(cells - 1, place)].append(math.log(value) if log else value)
    means = [math.fsum(part) / len(part) if part else None for part in parts]
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    return "".join(" " if mean is None else bar_of(mean, low, high) for mean in means)


def bar_of(value: float, low: float, high: float) -> str:
    """The bar of a value in a range; of a curve that never changes, one of middle height."""
    share = (value - low) / (high - low) if high > low else 0.5
    return BARS[min(len(BARS) - 1, int(share * len(BARS)))]


def short_number(value: float) -> str:
    """Three digits that count, in at most seven characters."""
    size = abs(value)
    if size >= 999_999.5 or 0 < size < 1e-3:
        return f"{value:.1e}"
    return f"{value:,.0f}" if size >= 999.5 else f"{value:.3g}"
