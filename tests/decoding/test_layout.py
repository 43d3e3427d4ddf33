"""Matrices laid out for products of few rows."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from clearhead import kernels
from clearhead.control_tokens import BOS, EOS
from clearhead.decoding.layout import lay_out_for_few_rows
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.packed_linear import PackedLinear
from clearhead.decoding.search import search
from clearhead.errors import ConfigError
from clearhead.models.transformer import parameter_names

needs_kernels = pytest.mark.skipif(kernels.library() is None, reason="this machine has no C++ compiler")
needs_int8 = pytest.mark.skipif(not kernels.has("int8"), reason="this processor has no AVX512-VNNI")
needs_int16 = pytest.mark.skipif(not kernels.has("int16"), reason="this processor has no AVX2")


@pytest.mark.parametrize("native", [False, pytest.param(True, marks=needs_kernels)])
def test_nothing_but_the_order_in_memory_changes(random_model, native, monkeypatch):
    if not native:
        monkeypatch.setattr(kernels, "library", lambda: None)
    model = random_model(4, tied="all")
    other = copy.deepcopy(model)
    lay_out_for_few_rows(other)
    source, target = torch.tensor([[4, 5, 2]]), torch.tensor([[1, 5, 6, 7]])
    torch.testing.assert_close(other(source, target), model(source, target))
    assert other.state_dict().keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], weight), name
    linears = [module for module in other.modules() if isinstance(module, nn.Linear)]
    assert len(linears) == 4 + 2 + 8 + 2 + 1
    if native:
        assert all(isinstance(linear, PackedLinear) for linear in linears)
    else:
        assert all(linear.weight.t().is_contiguous() for linear in linears)
        # Embeddings are looked up row by row: they stay as they were, so a tied projection is a matrix of its own.
        assert parameter_names(other).keys() - parameter_names(model).keys() == {"projection.weight"}
    assert other.target_embedding.weight.is_contiguous()


@needs_kernels
@pytest.mark.parametrize("beams", [1, 4])
def test_kernels_find_what_torch_finds(random_model, random_sources, beams, monkeypatch):
    model, sources = random_model(7, decoder_layers=2), random_sources(7, [9, 1, 5, 5, 2, 8, 3])
    packed = copy.deepcopy(model)
    lay_out_for_few_rows(packed)
    options = DecodingOptions(beam_size=beams, n_best=beams, batch_size=3 * beams)
    found = search(packed, sources, options)
    monkeypatch.setattr(kernels, "library", lambda: None)
    expected = search(model, sources, options)
    assert [[one.ids for one in outputs] for outputs in found] == [[one.ids for one in outputs] for outputs in expected]
    scores = [[one.score for outputs in results for one in outputs] for results in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@pytest.mark.parametrize(
    ("precision", "most"), [pytest.param("int16", 0.02, marks=needs_int16), pytest.param("int8", 0.5, marks=needs_int8)]
)
def test_integers_score_nearly_as_float32_does(random_model, random_sources, precision, most):
    """Each output, scored by the exact model, has nearly the score that the rounded one gave it."""
    model, sources = random_model(7), random_sources(7, [9, 1, 5, 5, 2, 8, 3])
    packed = copy.deepcopy(model)
    lay_out_for_few_rows(packed, precision)
    for source, outputs in zip(sources, search(packed, sources, DecodingOptions(beam_size=3)), strict=True):
        ids = outputs[0].ids
        logits = model(torch.tensor([source]), torch.tensor([[BOS, *ids]]))[0]
        exact = float(logits.log_softmax(-1)[range(len(ids) + 1), [*ids, EOS]].sum())
        assert outputs[0].log_probability == pytest.approx(exact, abs=most)
        assert outputs[0].log_probability != pytest.approx(exact, abs=1e-6)


@needs_kernels
def test_changed_weights_are_packed_anew():
    linear = nn.Linear(3, 2)
    model = nn.Sequential(linear)
    lay_out_for_few_rows(model)
    x = torch.randn(5, 3)
    with torch.no_grad():
        before = model(x)
        linear.weight[0] += 1.0
        torch.testing.assert_close(model(x), nn.functional.linear(x, linear.weight, linear.bias))
        linear.bias += 1.0
        torch.testing.assert_close(model(x), nn.functional.linear(x, linear.weight, linear.bias))
        assert not torch.allclose(model(x), before)


def through_a_file(model, tmp_path):
    torch.save(model, tmp_path / "model.pt")
    return torch.load(tmp_path / "model.pt", weights_only=False)


@needs_kernels
@pytest.mark.parametrize("copied", [lambda model, _: copy.deepcopy(model), through_a_file], ids=["copied", "loaded"])
def test_a_copy_has_panels_of_its_own(copied, tmp_path):
    model = nn.Sequential(nn.Linear(300, 200))
    lay_out_for_few_rows(model)
    other = copied(model, tmp_path)
    x = torch.randn(5, 300)
    with torch.no_grad():
        expected = model(x)
        model[0].weight.zero_()
        model[0].panels.panels.zero_()  # what the copy must not read
        assert torch.equal(other(x), expected)


@needs_kernels
def test_gradients_flow_through_a_packed_layer():
    linear = nn.Linear(3, 2)
    model = nn.Sequential(linear)
    lay_out_for_few_rows(model)
    model(torch.ones(1, 3)).sum().backward()
    assert torch.equal(linear.weight.grad, torch.ones(2, 3))


def test_a_precision_that_there_is_not(random_model, monkeypatch):
    with pytest.raises(ConfigError, match="one of float32, int16, int8"):
        lay_out_for_few_rows(random_model(1), "int4")
    monkeypatch.setattr(kernels, "library", lambda: None)
    with pytest.raises(ConfigError, match="compiler"):
        lay_out_for_few_rows(random_model(1), "int16")
