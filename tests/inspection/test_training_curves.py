"""The curves of a training are its log's numbers: as panels, as bars in the terminal, as a figure."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from clearhead.errors import RunError
from clearhead.inspection.sparklines import BARS, WIDTH, render_panels, short_number, sparkline
from clearhead.inspection.training_curves import (
    curve,
    describe_progress,
    read_log,
    short_name,
    standing_records,
    training_panels,
)
from clearhead.run_folder import RunFolder


def training_record(update, *, loss=None, plain=None, **more):
    plain = 8.0 / update if plain is None else plain
    return {
        "event": "training", "update": update, "loss": plain + 0.5 if loss is None else loss, "plain": plain,
        "learning_rate": update * 1e-4, "gradient_norm": 2.0, "seconds": update * 0.6, **more,
    }  # fmt: skip


def diagnostics_record(update, layers=2):
    paths = [f"{stack}.{layer}" for stack in ("encoder", "decoder") for layer in range(layers)]
    attentions = [
        f"{stack}.layers.{layer}.{kind}_attention"
        for stack, kinds in (("encoder", ["self"]), ("decoder", ["self", "cross"]))
        for layer in range(layers)
        for kind in kinds
    ]
    values = {
        f"{group}/{path}": update * 10.0**place
        for group in ("gradient_norm", "activation", "update_ratio")
        for place, path in enumerate(paths)
    }
    values |= {f"entropy/{path}": 1 / (place + update) for place, path in enumerate(attentions)}
    counts = {"saturated_heads": 3, "uniform_heads": 1, "heads": 6 * layers}
    return {"event": "diagnostics", "update": update, **values, **counts}


VALIDATION = {
    "event": "validation",
    "update": 40,
    "loss": 0.5,
    "perplexity": 1.6,
    "bleu": 21.5,
    "seconds": 3.0,
    "is_best": True,
}
RECORDS = [*map(training_record, (10, 20, 30, 40)), *map(diagnostics_record, (20, 40)), VALIDATION]


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path)
    folder.recipe.write_text("")
    return folder


def write(folder, records, tail=""):
    folder.metrics.write_text("".join(json.dumps(record) + "\n" for record in records) + tail)


def by_title(panels):
    return {panel.title: panel for panel in panels}


def test_every_number_of_the_log_is_in_its_panel():
    panels = by_title(training_panels(standing_records(RECORDS)))
    assert list(panels) == [
        "loss, nats per target token", "validation: bleu", "learning rate", "gradient norm, before clipping",
        "gradient norm by layer", "activations by layer", "update over weight by layer",
        "attention entropy (1: all keys alike)", "saturated, uniform heads of 12",
    ]  # fmt: skip
    assert panels["loss, nats per target token"].curves == {
        "training": [(10, 0.8), (20, 0.4), (30, 8 / 30), (40, 0.2)],
        "smoothed": [(10, 1.3), (20, 0.9), (30, 8 / 30 + 0.5), (40, 0.7)],
        "validation": [(40, 0.5)],
    }
    assert panels["validation: bleu"].curves == {"bleu": [(40, 21.5)]}
    assert panels["activations by layer"].curves["decoder.1"] == [(20, 20e3), (40, 40e3)]
    assert panels["activations by layer"].log
    entropies = panels["attention entropy (1: all keys alike)"].curves
    assert list(entropies) == ["encoder.0", "encoder.1", "decoder.0", "decoder.1", "cross.0", "cross.1"]
    assert entropies["cross.1"] == [(20, 1 / 25), (40, 1 / 45)]
    assert panels["saturated, uniform heads of 12"].curves == {
        "saturated": [(20, 3), (40, 3)],
        "uniform": [(20, 1), (40, 1)],
    }
    drawn = sum(len(points) for panel in panels.values() for points in panel.curves.values())
    assert drawn == 4 * 4 + 2 + 2 * (3 * 4 + 6 + 2)


def test_without_smoothing_and_diagnostics_there_is_no_panel_of_them():
    records = [training_record(10, loss=0.8), {**VALIDATION, "bleu": None}]
    panels = by_title(training_panels(records))
    assert list(panels) == ["loss, nats per target token", "learning rate", "gradient norm, before clipping"]
    assert set(panels["loss, nats per target token"].curves) == {"training", "validation"}


@given(st.lists(st.integers(1, 12), max_size=30))
def test_of_updates_that_were_made_again_the_last_counts(updates):
    """Against the definition: a record stands if no later one of its kind is of the same update or one before."""
    records = [training_record(update, plain=float(place)) for place, update in enumerate(updates)]
    expected = [
        float(place) for place, update in enumerate(updates) if all(later > update for later in updates[place + 1 :])
    ]
    assert [record["plain"] for record in standing_records(records)] == expected


def test_a_log_that_is_being_written_is_read(folder):
    write(folder, [training_record(10), training_record(20)], tail='{"event": "training", "upda')
    assert [record["update"] for record in read_log(folder)] == [10, 20]
    assert describe_progress(read_log(folder), folder) == "20 updates in 0.2 minutes, not finished"
    folder.write_summary({})
    assert describe_progress(read_log(folder), folder).endswith(", finished")


def test_what_is_no_record_is_left_out(folder):
    odd = [3, "x", None, [], {}, {"event": "training"}, {"update": 3}, {"event": 7, "update": 3}]
    odd += [{"event": "training", "update": value} for value in (True, 2.5, "3", None)]
    write(folder, [*odd, training_record(10), *odd], tail="\x00\n[[[[\n" + "[" * 100_000)
    folder.metrics.write_bytes(folder.metrics.read_bytes() + b"\xff\xfe\n")
    assert [record["update"] for record in read_log(folder)] == [10]


def test_gaps_are_where_there_is_no_finite_number():
    values = [1, 2.5, None, math.nan, math.inf, -math.inf, "3", True, [4]]
    records = [{"update": place, "x": value} for place, value in enumerate(values)]
    assert curve(records, "x") == [(0, 1.0), (1, 2.5)]


@pytest.mark.parametrize("content", [None, "", '{"event": "averaged", "update": 3}\n', "not JSON\n"])
def test_nothing_recorded_yet_is_said(folder, content):
    if content is not None:
        folder.metrics.write_text(content)
    with pytest.raises(RunError, match=r"metrics\.jsonl: nothing is recorded yet"):
        read_log(folder)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("encoder.3", "encoder.3"),
        ("encoder.layers.11.self_attention", "encoder.11"),
        ("decoder.layers.0.self_attention", "decoder.0"),
        ("decoder.layers.5.cross_attention", "cross.5"),
        ("", ""),
        ("x_attention", "x_attention"),
    ],
)
def test_short_names(path, name):
    assert short_name(path) == name


def test_bars_rise_with_the_values_and_stand_at_their_updates():
    assert sparkline([(i, float(i)) for i in range(8)], first=0, last=8, cells=8) == BARS
    assert sparkline([(i, 2.0**i) for i in range(8)], first=0, last=8, cells=8, log=True) == BARS
    assert sparkline([(0, 5.0), (100, 1.0)], first=0, last=100, cells=5) == "█   ▁"
    assert sparkline([(50, 1.0)], first=0, last=100, cells=5) == "  ▅  "
    assert sparkline([], first=0, last=0, cells=3) == "   "
    # two values of one part are one bar, that of their mean
    assert sparkline([(0, 0.0), (1, 8.0), (2, 0.0), (3, 2.0)], first=0, last=4, cells=2) == "█▁"


@given(st.just(0.0) | st.floats(1e-99, 9e99))
def test_numbers_are_short_and_near(value):
    text = short_number(value)
    assert len(text) <= 7
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.051)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_terminal_shows_all_curves_in_its_width(width):
    panels = training_panels(standing_records(RECORDS))
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(render_panels(panels, width=width))
    lines = capture.get().splitlines()
    assert all(cell_len(line.rstrip()) <= width for line in lines)
    assert sum(line.count("first") for line in lines) == len(panels)
    assert max(line.count("first") for line in lines) == max(1, (width + 2) // (WIDTH + 2))
    (rate,) = [line for line in lines if re.search(r"\brate +▁", line)]
    assert "0.001" in rate
    assert "0.004" in rate
    if width == 40:
        assert re.fullmatch(r"rate +▁ +▃ +▆ +█ +0\.001 +0\.004", rate.rstrip())
    if width == 80:
        assert max(line.count("first") for line in lines) == 2


def test_a_figure_has_a_panel_of_each_kind_and_every_point():
    pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install 'clearhead[plot]'")
    from clearhead.inspection.training_plot import plot_training

    panels = training_panels(standing_records(RECORDS))
    figure = plot_training(panels, "runs/$x$")
    figure.draw_without_rendering()
    drawn = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in drawn] == [panel.title for panel in panels]
    for axes, panel in zip(drawn, panels, strict=True):
        lines = [np.transpose(line.get_data()).tolist() for line in axes.lines]
        assert lines == [[list(point) for point in points] for points in panel.curves.values()]
        assert axes.get_yscale() == ("log" if panel.log else "linear")
        assert axes.get_xlabel() == ("update" if panel in panels[-3:] else "")


def test_of_many_layers_the_legend_names_the_first_and_the_last():
    pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install 'clearhead[plot]'")
    from clearhead.inspection.training_plot import plot_training

    records = standing_records([training_record(10), diagnostics_record(10, layers=6)])
    axes = {axes.get_title(): axes for axes in plot_training(training_panels(records), "run").axes}
    legend = axes["attention entropy (1: all keys alike)"].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [
        "encoder.0", "encoder.5", "decoder.0", "decoder.5", "cross.0", "cross.5",
    ]  # fmt: skip
    colours = [line.get_color() for line in axes["gradient norm by layer"].lines]
    assert len(set(colours)) == 12
