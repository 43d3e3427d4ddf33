"""Figures: what is drawn is the tensor, and every token has its label."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from clearhead.errors import ConfigError
from clearhead.inspection.plot import literal, save_figure
from clearhead.inspection.text import TextInspection

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install 'clearhead[plot]'")


@pytest.fixture(scope="module")
def inspection(make_translator):
    return make_translator("a b c $x$ 中 é", "x y z").inspect("a $x$ 中 b", target="x z y")


def test_a_map_is_drawn_as_it_is(inspection):
    figure = inspection.plot("cross", 2, 1)
    axes = figure.axes[0]
    assert np.array_equal(axes.images[0].get_array(), inspection.cross[2, 1].numpy())
    assert axes.images[0].get_clim() == (0.0, 1.0)  # the shade is the weight, whatever the largest is
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", r"\$x\$", "中", "b", "</s>"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "z", "y", "</s>"]
    mean = inspection.plot("cross", 2).axes[0]
    np.testing.assert_allclose(mean.images[0].get_array(), inspection.cross[2].mean(0), rtol=1e-6)
    assert (axes.get_title(), mean.get_title()) == (
        "cross-attention, layer 2, head 1",
        "cross-attention, layer 2, mean of all heads",
    )


def test_a_grid_has_layers_down_and_heads_across(inspection):
    figure = inspection.plot("decoder")
    assert len(figure.axes) == 4 * 3
    for place, axes in enumerate(figure.axes):
        assert np.array_equal(axes.images[0].get_array(), inspection.decoder[place // 3, place % 3].numpy())
    figure.draw_without_rendering()
    rows = {round(figure.axes[3 * layer].get_position().y0, 3) for layer in range(4)}
    assert len(rows) == 4


def test_maps_of_a_text_are_drawn_as_they_are():
    maps = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    inspection = TextInspection(["<s>", "a", "$", "b"], maps, [("", 0.0)] * 4, [1.0] * 4)
    axes = inspection.plot(1, 2).axes[0]
    assert np.array_equal(axes.images[0].get_array(), maps[1, 2].numpy())
    for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [label.get_text() for label in labels] == ["<s>", "a", r"\$", "b"]
    assert axes.get_title() == "self-attention, layer 1, head 2"
    np.testing.assert_allclose(inspection.plot(0).axes[0].images[0].get_array(), maps[0].mean(0), rtol=1e-6)
    grid = inspection.plot()
    assert [axes.images[0].get_array().tolist() for axes in grid.axes] == maps.flatten(0, 1).tolist()
    with pytest.raises(ConfigError, match="no layer 2"):
        inspection.plot(2)


@pytest.mark.parametrize("name", ["map.png", "map.svg", "map.pdf", "MAP.PNG"])
def test_files_of_several_kinds(make_translator, tmp_path, name):
    inspection = make_translator("a b", "x y").inspect("a b")
    save_figure(inspection.plot("encoder", 0, 0), tmp_path / name)
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert (tmp_path / name).read_bytes().startswith(starts[name[-3:].lower()])


@pytest.mark.parametrize("name", ["map.exe", "map"])
def test_a_kind_of_file_that_there_is_not(make_translator, tmp_path, name):
    figure = make_translator("a b", "x y").inspect("a b").plot("cross")
    with pytest.raises(ConfigError, match=r"ends in one of .*\.png"):
        save_figure(figure, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_what_is_not_there_is_not_drawn(make_translator):
    inspection = make_translator("a b", "x y", encoder_layers=0).inspect("a b")
    for ask in (
        lambda: inspection.plot("encoder"),
        lambda: inspection.plot("cross", 4),
        lambda: inspection.plot("self"),
    ):
        with pytest.raises(ConfigError, match=r"no encoder attention|no layer 4|'self'"):
            ask()


def test_without_matplotlib_there_is_a_hint(inspection, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"pip install 'clearhead\[plot\]'"):
        inspection.plot("cross")


def test_dollars_begin_no_formula():
    assert literal("a$b$") == r"a\$b\$"
