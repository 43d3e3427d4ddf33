"""A result's chart as a picture, drawn by matplotlib (`plot` extra)."""

from __future__ import annotations

from pathlib import Path

from clearhead.errors import ConfigError
from clearhead.experiments.result import Chart

MARKERS = "osD^vPX*"
"""Curves differ in their marks too: not everyone sees all colours, and some print."""


def require_plot(path: Path) -> None:
    """Raises `ConfigError` when matplotlib is missing, or writes no such kind of file: before anything is measured."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ModuleNotFoundError:
        raise ConfigError(
            'plots are drawn by matplotlib, which is not installed: pip install "clearhead[plot]"'
        ) from None
    kinds = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in kinds:
        raise ConfigError(f"{path}: a plot can't be written as {path.suffix!r}; end the name on .png, .svg or .pdf")


def draw(chart: Chart, path: Path) -> None:
    """Write the chart to a file; its ending says what kind (png, svg, pdf). Raises as `require_plot` does."""
    require_plot(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5), layout="constrained", dpi=100)
    axes = figure.add_subplot(title=chart.title, xlabel=chart.x, ylabel=chart.y)
    for place, (name, points) in enumerate(chart.curves.items()):
        x, y = zip(*points, strict=True)
        axes.plot(x, y, label=name, marker=MARKERS[place % len(MARKERS)] if len(points) <= 20 else None)
    if chart.log_x:
        axes.set_xscale("log", base=2)
    if chart.log_y:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
