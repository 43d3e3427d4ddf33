"""The map in the terminal: its columns stand under their labels, however wide the characters are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len, set_cell_size

from clearhead.inspection.heatmap import SHADES, WIDEST_LABEL, render_heatmap, shade

LABELS = st.text(st.sampled_from("abcXYZé中文字한국어ｗ▁‐"), min_size=1, max_size=9)


def start_of(line: str, part: str) -> int:
    """The cell in which a part of the line begins."""
    return cell_len(line[: line.index(part)])


@settings(deadline=None)
@given(keys=st.lists(LABELS, min_size=1, max_size=6), queries=st.lists(LABELS, min_size=1, max_size=6))
def test_each_shade_stands_under_its_label(keys, queries):
    """Every query looks at one key only, so its row is dark in one place: exactly as wide as that key's label."""
    keys = [f"{place}{key}" for place, key in enumerate(keys)]
    looks_at = [place % len(keys) for place in range(len(queries))]
    weights = torch.zeros(len(queries), len(keys))
    weights[range(len(queries)), looks_at] = 1.0
    header, *rows = render_heatmap(weights, queries, keys).split("\n")
    assert len(rows) == len(queries)
    for row, query, place in zip(rows, queries, looks_at, strict=True):
        label = keys[place] if cell_len(keys[place]) <= WIDEST_LABEL else str(place)
        assert row.startswith(query) or cell_len(query) > WIDEST_LABEL
        dark = "█" * row.count("█")
        assert row.endswith(dark)
        assert start_of(row, dark) == start_of(header, label)
        assert len(dark) == min(WIDEST_LABEL, cell_len(keys[place]))


def test_long_labels_are_shortened_and_stay_apart():
    header, row = render_heatmap(
        torch.tensor([[0.0, 1.0]]), ["q" * 40], ["abcdefghijklmnop", "中文中文中文中文"]
    ).split("\n")
    assert header.split() == ["abcdefghijkl", "中文中文中文"]
    assert row.split() == ["q" * WIDEST_LABEL, "█" * 12]
    assert start_of(header, "中") == start_of(row, "█")


def test_shades_grow_with_the_weight():
    weights = [place / 100 for place in range(101)]
    shades = [SHADES.index(shade(weight)) for weight in weights]
    assert shades == sorted(shades)
    assert (shades[0], shades[-1]) == (0, len(SHADES) - 1)
    assert set(shades) == set(range(len(SHADES)))
    assert shade(1.0 + 1e-6) == SHADES[-1]  # rounding


def test_a_pale_row_stays_pale():
    _, row = render_heatmap(torch.full((1, 20), 0.05), ["q"], ["k"] * 20).split("\n")
    assert set(row[1:]) <= set(SHADES[:2])


@pytest.mark.parametrize(("queries", "keys"), [(2, 2), (3, 3), (2, 4), (0, 3), (3, 2)])
def test_labels_that_do_not_fit_the_weights(queries, keys):
    with pytest.raises(ValueError, match=rf"shape \(2, 3\) for {queries} queries and {keys} keys"):
        render_heatmap(torch.zeros(2, 3), ["q"] * queries, ["k"] * keys)


@settings(deadline=None)
@given(keys=st.lists(LABELS, min_size=1, max_size=12), width=st.integers(1, 60))
def test_what_is_wider_than_the_terminal_is_broken_like_a_text(keys, width):
    """Every column comes once, in order; a block is too wide only if it is a single column."""
    keys = [f"{place}{key}"[:WIDEST_LABEL] for place, key in enumerate(keys)]
    weights = torch.eye(len(keys))
    blocks = render_heatmap(weights, ["q"] * len(keys), keys, width=width).split("\n\n")
    headers = [block.split("\n")[0].split() for block in blocks]
    assert [label for header in headers for label in header] == [
        set_cell_size(key, min(cell_len(key), WIDEST_LABEL)).strip() for key in keys
    ]
    for block, header in zip(blocks, headers, strict=True):
        rows = block.split("\n")
        assert len(rows) == 1 + len(keys)
        assert max(map(cell_len, rows)) <= width or len(header) == 1
        assert [row[0] for row in rows[1:]] == ["q"] * len(keys)
        assert sum("█" in row for row in rows) == len(header)
