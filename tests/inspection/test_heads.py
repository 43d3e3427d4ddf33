"""Heads by name, and heads switched off."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.errors import ConfigError
from clearhead.inspection.heads import KINDS, Head, all_heads, attention_path, heads_off, parse_head

SOURCE = torch.tensor([[4, 5, 6, 4, 2], [5, 5, 2, 0, 0]])
TARGET = torch.tensor([[1, 4, 6, 5], [1, 6, 0, 0]])


@pytest.fixture
def translator(make_translator):
    return make_translator("a b c", "x y z")


def without_by_hand(model, head, run):
    """What `run` gives while a hook zeroes what the head found, before the heads are joined by `w_o`."""
    attention = model.get_submodule(attention_path(head.kind, head.layer))

    def silence(_, inputs):
        heads = inputs[0].unflatten(-1, (attention.n_heads, -1)).clone()
        heads[..., head.head, :] = 0.0
        return (heads.flatten(-2),)

    handle = attention.w_o.register_forward_pre_hook(silence)
    try:
        return run()
    finally:
        handle.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_is_off_finds_nothing(translator, kind):
    model = translator.model
    whole = model(SOURCE, TARGET)
    for head in [one for one in all_heads(model) if one.kind == kind]:
        expected = without_by_hand(model, head, lambda: model(SOURCE, TARGET))
        with heads_off(model, [head]):
            torch.testing.assert_close(model(SOURCE, TARGET), expected, rtol=1e-5, atol=1e-6)
        assert not torch.allclose(expected, whole, atol=1e-4)


def test_it_holds_for_cached_decoding_and_recording(translator):
    head = Head("cross", 1, 2)
    expected = without_by_hand(translator.model, head, lambda: translator.inspect("a b c"))
    with heads_off(translator.model, [head]):
        found = translator.inspect("a b c")
        assert found.translation == translator.translate("a b c") == expected.translation
    torch.testing.assert_close(found.cross, expected.cross, rtol=1e-4, atol=1e-6)


def test_afterwards_the_weights_are_what_they_were(translator):
    model = translator.model
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    one, two = Head("encoder", 0, 1), Head("encoder", 0, 2)
    with pytest.raises(ZeroDivisionError), heads_off(model, [one, one]), clearhead.heads_off(model, [one, two]):
        1 / 0  # noqa: B018
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    assert (before["encoder.layers.0.self_attention.w_o.weight"] != 0).all()


def test_all_heads_of_a_layer_off_leave_its_bias(translator):
    attention = translator.model.decoder.layers[3].cross_attention
    seen = []
    handle = attention.register_forward_hook(lambda _, inputs, output: seen.append(output))
    with heads_off(translator.model, [Head("cross", 3, head) for head in range(3)]):
        translator.model(SOURCE, TARGET)
    handle.remove()
    torch.testing.assert_close(seen[0], attention.w_o.bias.expand_as(seen[0]))


def test_names(translator):
    model = translator.model
    heads = all_heads(model)
    assert len(heads) == len(set(heads)) == 3 * (2 + 4 + 4)
    assert [parse_head(str(head), model) for head in heads] == heads
    assert str(Head("decoder", 3, 0)) == "decoder.3.0"
    for name in ("cross.0.3", "encoder.2.0", "cross.0", "cross.0.0.0", "self.0.0", "cross.-1.0", "cross.00.0", ""):
        with pytest.raises(ConfigError, match=r"2 encoder and 4 decoder layers of 3 heads"):
            parse_head(name, model)
