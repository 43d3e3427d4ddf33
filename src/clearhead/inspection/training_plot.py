"""A training's curves as a figure, by matplotlib (the extra `plot`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clearhead.inspection.plot import literal, new_figure, shortened
from clearhead.inspection.training_curves import Curve, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (4.4, 2.9)
"""Inches."""
SHADES = {"encoder": "Blues", "decoder": "Oranges", "cross": "Greens"}
"""The deeper the layer, the darker."""
MOST_NAMED = 6
"""Of more curves only the first and the last of each stack are in the legend: the shades tell the rest."""


def plot_training(panels: Sequence[Panel], title: str) -> Figure:
    """A panel beside the other, over the same updates. Raises `ConfigError` when matplotlib is missing."""
    columns = 2 if len(panels) <= 4 else 3
    rows = math.ceil(len(panels) / columns)
    figure = new_figure((PANEL[0] * columns, PANEL[1] * rows + 0.4))
    grid: Any = figure.subplots(rows, columns, squeeze=False, sharex=True)
    places = list(grid.flat)
    for axes, panel in zip(places, panels, strict=False):
        draw_panel(axes, panel)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    for axes in places[max(0, len(panels) - columns) : len(panels)]:
        axes.set_xlabel("update")
        axes.tick_params(labelbottom=True)  # also where the panel below is missing
    figure.suptitle(shortened(title, 120))
    return figure


def draw_panel(axes: Axes, panel: Panel) -> None:
    """All curves of a panel; few points are marked, for a line alone would hide how few there are."""
    colours = colours_of(panel.curves)
    named = names_in_legend(list(panel.curves))
    for name, points in panel.curves.items():
        updates, values = zip(*points, strict=True)
        axes.plot(
            updates, values,
            color=colours.get(name), label=literal(name) if name in named else None, linewidth=1.4,
            marker="o" if len(points) <= 12 else None, markersize=3.5, clip_on=False,
        )  # fmt: skip
    axes.set_title(panel.title, fontsize=10)
    axes.set_yscale("log" if panel.log else "linear")
    heights = [value for points in panel.curves.values() for _, value in points]
    if not panel.log and min(heights) >= 0:
        axes.set_ylim(0, None if max(heights) else 1)
    axes.grid(alpha=0.25)
    axes.tick_params(labelsize=8)
    if len(panel.curves) > 1:
        axes.legend(fontsize=8, frameon=False, ncols=2 if len(named) > 3 else 1)


def colours_of(curves: Mapping[str, Curve]) -> dict[str, Any]:
    """A shade of its stack's colour for each layer; other curves take matplotlib's own."""
    from matplotlib import colormaps

    found = {}
    for stack, shades in SHADES.items():
        names = [name for name in curves if name.startswith(f"{stack}.")]
        for place, name in enumerate(names):
            found[name] = colormaps[shades](0.9 if len(names) == 1 else 0.45 + 0.5 * place / (len(names) - 1))
    return found


def names_in_legend(names: Sequence[str]) -> set[str]:
    """All of few; of many the first and the last of each stack."""
    if len(names) <= MOST_NAMED:
        return set(names)
    stacks: dict[str, list[str]] = {}
    for name in names:
        stacks.setdefault(name.split(".")[0], []).append(name)
    return {name for stack in stacks.values() for name in (stack[0], stack[-1])}
