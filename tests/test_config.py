"""The shape of a model: what fits together, what doesn't, and what the errors say."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.config import PRESETS, ModelConfig
from clearhead.errors import ClearheadError, ConfigError


def config(**fields):
    return ModelConfig(**{"source_vocab": 11, "target_vocab": 13, **fields})


def message_of(**fields) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**fields)
    return str(caught.value)


@settings(deadline=None)
@given(
    vocabularies=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)),
    heads=st.integers(1, 32),
    width=st.integers(1, 128),
    d_ff=st.integers(1, 10**5),
    layers=st.tuples(st.integers(0, 100), st.integers(1, 100)),
    norm_position=st.sampled_from(["post", "pre"]),
    tied=st.sampled_from(["none", "output", "all"]),
    rates=st.tuples(*[st.none() | st.floats(0, 1, exclude_max=True)] * 2),
    dropout=st.floats(0, 1, exclude_max=True),
)
def test_every_field_survives_json(vocabularies, heads, width, d_ff, layers, norm_position, tied, rates, dropout):
    source, target = vocabularies
    original = ModelConfig(
        source_vocab=target if tied == "all" else source,
        target_vocab=target,
        d_model=heads * width,
        d_ff=d_ff,
        n_heads=heads,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        norm_position=norm_position,
        tied=tied,
        dropout=dropout,
        attention_dropout=rates[0],
        feed_forward_dropout=rates[1],
    )
    assert ModelConfig.from_dict(json.loads(json.dumps(original.to_dict()))) == original
    assert set(original.to_dict()) == {field.name for field in dataclasses.fields(ModelConfig)}


def test_a_config_can_not_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().d_model = 7


def test_dropout_inside_follows_the_general_rate_unless_given():
    assert config(dropout=0.3).attention_dropout_rate == 0.3
    assert config(dropout=0.3).feed_forward_dropout_rate == 0.3
    assert config(dropout=0.3, attention_dropout=0.0).attention_dropout_rate == 0.0
    assert config(dropout=0.3, feed_forward_dropout=0.2).feed_forward_dropout_rate == 0.2


# case S1
def test_heads_that_do_not_divide_the_width_are_named():
    message = message_of(d_model=10, n_heads=3)
    assert "d_model = 10" in message
    assert "n_heads = 3" in message
    config(d_model=5, n_heads=1)
    config(d_model=1, n_heads=1)


@pytest.mark.parametrize("name", ["source_vocab", "target_vocab", "d_model", "d_ff", "n_heads", "decoder_layers"])
@pytest.mark.parametrize("value", [0, -3, 2.0, True, "8", None])
def test_sizes_are_whole_and_positive(name, value):
    message = message_of(**{name: value})
    assert f"{name} = {value!r}" in message
    assert "whole number of at least 1" in message


@pytest.mark.parametrize("value", [-1, 1.5, False])
def test_an_encoder_may_have_no_layers_but_no_fewer(value):
    config(encoder_layers=0)
    assert f"encoder_layers = {value!r}" in message_of(encoder_layers=value)


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "feed_forward_dropout"])
@pytest.mark.parametrize("value", [1, 1.0, -0.1, 10, float("nan"), "0.1"])
def test_a_rate_lies_between_0_and_1(name, value):
    assert f"{name} = {value!r}" in message_of(**{name: value})


@pytest.mark.parametrize("value", [0, -1e-5, float("nan"), None])
def test_epsilon_is_positive(value):
    assert f"norm_epsilon = {value!r}" in message_of(norm_epsilon=value)


def test_choices_are_listed():
    assert message_of(norm_position="before") == "norm_position = 'before': choose one of post, pre"
    assert message_of(tied=True) == "tied = True: choose one of none, output, all"


def test_one_matrix_for_all_needs_one_vocabulary():
    message = message_of(tied="all")
    assert "11 and 13" in message
    assert "tokenizer.shared = true" in message
    config(source_vocab=13, tied="all")


def test_an_unknown_key_is_named_with_the_nearest_field():
    with pytest.raises(ConfigError, match=r"'d_modle'; did you mean d_model\?"):
        ModelConfig.from_dict({"source_vocab": 11, "target_vocab": 13, "d_modle": 8})
    with pytest.raises(ConfigError, match=r"'colour'; the fields are source_vocab, target_vocab"):
        ModelConfig.from_dict({"source_vocab": 11, "target_vocab": 13, "colour": "blue"})


def test_missing_vocabularies_are_named():
    with pytest.raises(ConfigError, match="lacks source_vocab and target_vocab"):
        ModelConfig.from_dict({"d_model": 8})
    with pytest.raises(ConfigError, match="lacks target_vocab"):
        ModelConfig.from_dict({"source_vocab": 8})


def test_the_error_belongs_to_the_family():
    assert issubclass(ConfigError, ClearheadError)


@pytest.mark.parametrize(
    ("preset", "encoder", "decoder", "d_model", "d_ff", "heads"),
    [
        ("tiny", 4, 4, 128, 256, 4),
        ("small", 6, 6, 512, 1024, 4),
        ("base", 6, 6, 512, 2048, 8),  # table 3 of the paper
        ("big", 6, 6, 1024, 4096, 16),
    ],
)
def test_presets(preset, encoder, decoder, d_model, d_ff, heads):
    shape = config(**PRESETS[preset])
    assert (shape.encoder_layers, shape.decoder_layers) == (encoder, decoder)
    assert (shape.d_model, shape.d_ff, shape.n_heads) == (d_model, d_ff, heads)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kv_heads": 4}, "kv_heads = 4: only a model of architecture 'decoder'"),
        ({"biases": False}, "biases = False: only"),
        ({"segments": 2}, "segments = 2: only a model of architecture 'encoder'"),
        ({"positions": "rotary"}, "has one of sinusoids, sinusoids_halves"),
        ({"positions": "learned", "max_positions": 9}, "has one of sinusoids, sinusoids_halves"),
        ({"architecture": "decoder"}, "one vocabulary"),
        ({"architecture": "decoder", "source_vocab": 13}, "encoder_layers = 6"),
        ({"embedding": "normed"}, "embedding = 'normed'"),
    ],
)
def test_options_of_another_architecture_are_refused(fields, words):
    assert words in message_of(**fields)


LLAMA = {"source_vocab": 13, "architecture": "decoder", "encoder_layers": 0, "positions": "rotary"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kv_heads": 3}, "n_heads = 8 can't share kv_heads = 3"),
        ({"rotary_base": 0}, "rotary_base = 0"),
        ({"rotary_scaling": {"kind": "yarn", "factor": 2}}, "the kinds and their numbers are linear: factor; llama3"),
        ({"rotary_scaling": {"kind": "linear"}}, "rotary_scaling = {'kind': 'linear'}"),
        ({"rotary_scaling": {"kind": "linear", "factor": -1}}, "rotary_scaling.factor = -1"),
        ({"d_model": 24}, "a head has 3"),
        ({"positions": "learned"}, "needs max_positions"),
    ],
)
def test_rotary_options_are_checked(fields, words):
    config(**LLAMA)
    assert words in message_of(**{**LLAMA, **fields})


def test_the_shape_of_an_older_run_still_loads():
    """A run folder's file from before there were variants."""
    older = {
        "source_vocab": 394, "target_vocab": 15, "d_model": 96, "d_ff": 256, "n_heads": 4, "encoder_layers": 2,
        "decoder_layers": 2, "norm_position": "pre", "tied": "output", "dropout": 0.1, "attention_dropout": None,
        "feed_forward_dropout": None, "norm_epsilon": 1e-05,
    }  # fmt: skip
    shape = ModelConfig.from_dict(older)
    assert (shape.architecture, shape.positions, shape.feed_forward) == ("encoder-decoder", "sinusoids", "relu")
