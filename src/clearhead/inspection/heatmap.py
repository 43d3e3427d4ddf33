"""Attention weights as a shaded map in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from rich.cells import cell_len, set_cell_size
from torch import Tensor

SHADES = " ·░▒▓█"
"""From nothing to all of a row's attention."""
WIDEST_LABEL = 12


def render_heatmap(
    weights: Float[Tensor, "q k"], queries: Sequence[str], keys: Sequence[str], *, width: int | None = None
) -> str:
    """A text of one line for each query and one column for each key, both labelled.

    Where the columns need more than `width` cells, they are broken like a text: one map below another.

    The shade is the weight itself, not scaled to a row's largest, so that a row that looks nowhere in particular stays
    pale. Wide characters (Chinese, for example) take two cells and still line up.
    """
    if tuple(weights.shape) != (len(queries), len(keys)):
        raise ValueError(f"weights of shape {tuple(weights.shape)} for {len(queries)} queries and {len(keys)} keys")
    left = min(WIDEST_LABEL, max(map(cell_len, queries), default=0))
    widths = [max(1, min(WIDEST_LABEL, cell_len(key))) + 1 for key in keys]
    blocks = break_columns(widths, len(keys) * (WIDEST_LABEL + 1) if width is None else width - left - 1)
    return "\n\n".join(render_block(weights[:, block], queries, keys[block], left, widths[block]) for block in blocks)


def break_columns(widths: Sequence[int], room: int) -> list[slice]:
    """As many columns as there is room for, at least one, then the next ones."""
    blocks, start, taken = [], 0, 0
    for place, width in enumerate(widths):
        if place > start and taken + width > room:
            blocks.append(slice(start, place))
            start, taken = place, 0
        taken += width
    return [*blocks, slice(start, len(widths))]


def render_block(
    weights: Float[Tensor, "q k"], queries: Sequence[str], keys: Sequence[str], left: int, widths: Sequence[int]
) -> str:
    """Some columns: their labels, and a line for each query, whose label takes `left` cells."""
    header = " " * (left + 1) + "".join(
        set_cell_size(key, width - 1) + " " for key, width in zip(keys, widths, strict=True)
    )
    lines = [header.rstrip()]
    for query, row in zip(queries, weights.tolist(), strict=True):
        shades = (shade(weight) * (width - 1) + " " for weight, width in zip(row, widths, strict=True))
        lines.append(f"{set_cell_size(query, left)} {''.join(shades)}".rstrip())
    return "\n".join(lines)


def shade(weight: float) -> str:
    """The character for a weight between 0 and 1."""
    return SHADES[min(len(SHADES) - 1, int(weight * len(SHADES) + 0.25))]
