"""Attention maps as figures, by matplotlib (the extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from clearhead.inspection.sentence import Inspection
    from clearhead.inspection.text import TextInspection

FONTS = [
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Microsoft YaHei", "Noto Sans Devanagari",
    "Noto Sans Bengali", "Noto Sans Thai",
]  # fmt: skip
"""Looked for in this order, letter by letter: labels may be of any script. The first comes with matplotlib."""
TITLES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
AXES = {
    "encoder": ("source token", "looks at"),
    "decoder": ("while writing", "looks at what was written"),
    "cross": ("while writing", "looks at source token"),
}
CELL, MARGIN = 0.24, 1.6
"""Inches that a labelled cell and the labels take."""


def plot_map(inspection: Inspection, kind: str, layer: int, head: int | None = None) -> Figure:
    """One head, or the mean of a layer's heads, with its tokens.

    Raises `ConfigError` for a layer or a head that there is not, or when matplotlib is missing.
    """
    weights = inspection.weights(kind, layer, head)
    return draw_map(weights, *inspection.labels(kind), AXES[kind], map_title(TITLES[kind], layer, head))


def plot_grid(inspection: Inspection, kind: str) -> Figure:
    """All heads of a kind: layers down, heads across. Raises `ConfigError` when matplotlib is missing."""
    maps = inspection.maps(kind)
    if not len(maps):
        raise ConfigError(f"the model has no {kind} attention to draw")
    return draw_grid(maps, f"{TITLES[kind]}: {shortened(inspection.source)}")


def plot_text_map(inspection: TextInspection, layer: int, head: int | None = None) -> Figure:
    """One head over a text, or the mean of a layer's heads. Raises as `plot_map` does."""
    weights = inspection.weights(layer, head)
    axes = ("token", "looks at")
    return draw_map(weights, inspection.tokens, inspection.tokens, axes, map_title("self-attention", layer, head))


def plot_text_grid(inspection: TextInspection) -> Figure:
    """All heads over a text: layers down, heads across. Raises `ConfigError` when matplotlib is missing."""
    return draw_grid(inspection.maps, f"self-attention: {shortened(' '.join(inspection.tokens))}")


def map_title(what: str, layer: int, head: int | None) -> str:
    """Which map it is."""
    return f"{what}, layer {layer}, {'mean of all heads' if head is None else f'head {head}'}"


def draw_map(
    weights: Float[Tensor, "q k"], queries: Sequence[str], keys: Sequence[str], names: tuple[str, str], title: str
) -> Figure:
    """A map with its tokens; `names` are those of the axes, that of the queries first."""
    size = (max(3.0, CELL * len(keys) + MARGIN), max(2.4, CELL * len(queries) + MARGIN))
    figure = new_figure(size)
    axes = figure.add_subplot()
    image = draw_weights(axes, weights)
    label_tokens(axes, queries, keys)
    axes.set_ylabel(names[0])
    axes.set_xlabel(names[1])
    axes.set_title(title)
    figure.colorbar(image, ax=axes, shrink=0.8, label="weight")
    return figure


def draw_grid(maps: Float[Tensor, "l h q k"], title: str) -> Figure:
    """All maps without tokens, layers down and heads across."""
    layers, heads = maps.shape[:2]
    figure = new_figure((1.3 * heads + 0.7, 1.3 * layers + 0.8))
    grid: Any = figure.subplots(layers, heads, squeeze=False)
    for layer in range(layers):
        for head in range(heads):
            axes = grid[layer, head]
            draw_weights(axes, maps[layer, head])
            axes.set_xticks([])
            axes.set_yticks([])
            if layer == 0:
                axes.set_title(f"head {head}", fontsize=9)
            if head == 0:
                axes.set_ylabel(f"layer {layer}", fontsize=9)
    figure.suptitle(title, fontsize=10, family=fonts())
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's name ends in. Raises `ConfigError` for one that there is not."""
    kinds = sorted(figure.canvas.get_supported_filetypes())
    if path.suffix.lstrip(".").lower() not in kinds:
        raise ConfigError(f"{path}: a picture's name ends in one of {', '.join('.' + kind for kind in kinds)}")
    figure.savefig(path, dpi=144)


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty figure of a size in inches. It belongs to no window and to no global state."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ConfigError("drawing needs matplotlib: pip install 'clearhead[plot]'") from error
    return Figure(figsize=size, layout="constrained")


def draw_weights(axes: Axes, weights: Float[Tensor, "q k"]) -> Any:
    """Dark is much: white is nothing, whatever the largest weight is."""
    return axes.imshow(torch.as_tensor(weights).numpy(), cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")


def label_tokens(axes: Axes, queries: Sequence[str], keys: Sequence[str]) -> None:
    """Every token at its row or column; `$` is a dollar sign and begins no formula."""
    upright, family = all(len(key) <= 2 for key in keys[:-1]), fonts()
    axes.set_xticks(range(len(keys)), [literal(key) for key in keys], rotation=0 if upright else 90, family=family)
    axes.set_yticks(range(len(queries)), [literal(query) for query in queries], family=family)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0)


@cache
def fonts() -> list[str]:
    """Those of `FONTS` that are installed."""
    from matplotlib.font_manager import get_font_names

    installed = get_font_names()
    return [font for font in FONTS if font in installed]


def literal(token: str) -> str:
    """The token as matplotlib is to be told it."""
    return token.replace("$", r"\$")


def shortened(text: str, length: int = 60) -> str:
    """The text, cut if it is long, as matplotlib is to be told it."""
    return literal(text if len(text) <= length else text[: length - 1] + "…")
