"""Layers that run in one native call, against the same ones in float64 by torch."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import clearhead
from clearhead import kernels
from clearhead.config import ModelConfig
from clearhead.decoding.layout import lay_out_for_few_rows
from clearhead.decoding.native_layers import NativeCall, NativeEncoderLayer
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.search import search
from clearhead.errors import RunError
from clearhead.models.gpt import GPT
from clearhead.models.transformer import Transformer
from clearhead.parts.cache import Rows

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="this machine has no C++ compiler")

VOCABULARY = 9


def random_weights(model: Transformer | GPT, seed: int) -> Transformer | GPT:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.requires_grad_(False).eval()


def make_transformer(seed: int, **shape: object) -> Transformer:
    sizes = {"d_model": 12, "d_ff": 17, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 2}
    return random_weights(Transformer(ModelConfig(source_vocab=9, target_vocab=9, **(sizes | shape))), seed)


def make_gpt(seed: int, **shape: object) -> GPT:
    sizes = {"d_model": 12, "d_ff": 17, "n_heads": 2, "encoder_layers": 0, "decoder_layers": 2, "max_positions": 40}
    config = ModelConfig(source_vocab=9, target_vocab=9, architecture="decoder", **(sizes | shape))
    return random_weights(GPT(config), seed)


def steps(model: Transformer | GPT, seed: int, *, sentences: int, beams: int, count: int = 7) -> list[Tensor]:
    """The logits of some steps in which hypotheses change places, close, and sentences leave."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 6, (sentences,), generator=generator)
    texts = torch.randint(4, VOCABULARY, (sentences, 5), generator=generator)
    texts = texts.masked_fill(torch.arange(5) >= lengths[:, None], 0)
    if isinstance(model, GPT):
        cache = model.start_cache(sentences, capacity=3)
        found = [model.start(texts, lengths, cache)]
        cache.fan_out(beams)
    else:
        cache, found = model.start_cache(model.encode(texts), beams=beams, capacity=3), []
    for number in range(count):
        if number == count // 2 and sentences > 1:
            cache.keep_sentences(torch.arange(1, sentences))
            sentences -= 1
        is_open = torch.rand(sentences, beams, generator=generator) < 0.7
        is_open[0, 0] = True
        cache.rows = Rows(is_open)
        ids = torch.randint(0, VOCABULARY, (int(is_open.sum()), 1), generator=generator)
        found.append(model.step(ids, cache)[:, 0])
        if beams > 1:
            cache.follow(torch.randint(0, beams, (sentences, beams), generator=generator))
    return found


def require_equal(model: Transformer | GPT, seed: int, *, sentences: int, beams: int) -> None:
    packed = copy.deepcopy(model)
    lay_out_for_few_rows(packed)
    with torch.inference_mode():
        expected = steps(model.double(), seed, sentences=sentences, beams=beams)
        found = steps(packed, seed, sentences=sentences, beams=beams)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each native step had."""
    rows: list[int] = []
    step = kernels.NativeLayer.step

    def counting(self: kernels.NativeLayer, x: Tensor, *args: object, **kwargs: object) -> Tensor:
        rows.append(len(x))
        return step(self, x, *args, **kwargs)

    monkeypatch.setattr(kernels.NativeLayer, "step", counting)
    return rows


@settings(deadline=None, max_examples=40)
@given(
    norm_position=st.sampled_from(["post", "pre"]), norm=st.sampled_from(["layer", "rms"]),
    feed_forward=st.sampled_from(["relu", "gelu", "gelu_tanh", "silu", "swiglu"]), heads=st.sampled_from([1, 2, 3]),
    width=st.sampled_from([12, 30, 48]), sentences=st.integers(1, 4), beams=st.integers(1, 3), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_transformer(norm_position, norm, feed_forward, heads, width, sentences, beams, seed):
    shape = {"norm_position": norm_position, "norm": norm, "feed_forward": feed_forward, "n_heads": heads}
    require_equal(make_transformer(seed, d_model=width, **shape), seed, sentences=sentences, beams=beams)


@settings(deadline=None, max_examples=40)
@given(
    norm_position=st.sampled_from(["post", "pre"]), norm=st.sampled_from(["layer", "rms"]), biases=st.booleans(),
    feed_forward=st.sampled_from(["gelu_tanh", "swiglu"]), positions=st.sampled_from(["learned", "rotary"]),
    heads=st.sampled_from([(1, 1), (2, 2), (4, 2), (4, 1)]), sentences=st.integers(1, 4), beams=st.integers(1, 3),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_any_gpt(norm_position, norm, biases, feed_forward, positions, heads, sentences, beams, seed):
    shape = {"norm_position": norm_position, "norm": norm, "feed_forward": feed_forward, "positions": positions}
    model = make_gpt(seed, d_model=24, n_heads=heads[0], kv_heads=heads[1], biases=biases, **shape)
    require_equal(model, seed, sentences=sentences, beams=beams)


@settings(deadline=None, max_examples=40)
@given(
    norm_position=st.sampled_from(["post", "pre"]), norm=st.sampled_from(["layer", "rms"]),
    feed_forward=st.sampled_from(["relu", "gelu", "gelu_tanh", "silu", "swiglu"]), heads=st.sampled_from([1, 2, 3]),
    width=st.sampled_from([12, 30, 48]), sentences=st.integers(1, 4), longest=st.sampled_from([1, 5, 40]),
    masked=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_encoder(norm_position, norm, feed_forward, heads, width, sentences, longest, masked, seed):
    shape = {"norm_position": norm_position, "norm": norm, "feed_forward": feed_forward, "n_heads": heads}
    encoder = make_transformer(seed, d_model=width, encoder_layers=2, **shape).encoder
    packed = copy.deepcopy(encoder)
    packed.config = ModelConfig(source_vocab=9, target_vocab=9, d_model=width, **shape)
    lay_out_for_few_rows(packed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sentences, longest, width, generator=generator)
    lengths = torch.randint(1, longest + 1, (sentences,), generator=generator)
    real = torch.arange(longest) < lengths[:, None] if masked else torch.ones(sentences, longest, dtype=torch.bool)
    mask = real[:, None, None] if masked else None
    with torch.inference_mode():
        found, expected = packed(x, mask), encoder.double()(x.double(), mask)
    assert isinstance(packed.layers[1], NativeEncoderLayer)
    torch.testing.assert_close(found[real].double(), expected[real], rtol=1e-4, atol=1e-4)


def test_an_encoder_that_is_looked_into(monkeypatch):
    """Masks of another shape, long texts and recorded weights are torch's."""
    model = make_transformer(11)
    plain = copy.deepcopy(model)
    lay_out_for_few_rows(model)
    layers, x = (plain.encoder.layers[0], model.encoder.layers[0]), torch.randn(2, 6, 12)
    square = torch.ones(6, 6, dtype=torch.bool).tril().expand(2, 1, 6, 6)
    read: list[int] = []
    monkeypatch.setattr(kernels.NativeLayer, "read", lambda *_: read.append(1))
    with torch.inference_mode():
        for mask in (square, square[:, 0], square[0, 0]):
            torch.testing.assert_close(*(layer(x, mask) for layer in layers))
        long = torch.randn(1, 300, 12)
        torch.testing.assert_close(*(layer(long) for layer in layers))
        with clearhead.record_attention(model) as maps:
            torch.testing.assert_close(*(layer(x) for layer in layers))
    assert "encoder.layers.0.self_attention" in maps
    assert not read


@pytest.mark.parametrize("make", [make_transformer, make_gpt])
def test_every_layer_takes_its_steps_so(make, taken):
    positions = {"positions": "learned"} if make is make_gpt else {}
    model = make(1, **positions)
    lay_out_for_few_rows(model)
    with torch.inference_mode():
        steps(model, 1, sentences=3, beams=2, count=4)
    assert len(taken) == 2 * 4


def test_large_scores_do_not_overflow():
    model = make_transformer(2)
    with torch.no_grad():
        for layer in model.decoder.layers:
            for attention in (layer.self_attention, layer.cross_attention):
                attention.w_q.weight *= 1e3
                attention.w_k.weight *= 1e3
    require_equal(model, 2, sentences=3, beams=2)


def test_nan_of_another_hypothesis_stays_there():
    """What is hidden has no say, whatever it is."""
    model = make_transformer(4, tied="none")
    lay_out_for_few_rows(model)
    with torch.inference_mode():
        cache = model.start_cache(model.encode(torch.tensor([[4, 5, 2]])), beams=2)
        expected = model.step(torch.tensor([[1], [1]]), cache)[0]
        model.target_embedding.weight[8] = torch.nan
        cache = model.start_cache(model.encode(torch.tensor([[4, 5, 2]])), beams=2)
        found = model.step(torch.tensor([[1], [8]]), cache)
    assert torch.equal(found[0], expected)
    assert not found[1].isfinite().any()


def test_two_threads_find_the_same():
    model = make_transformer(3, d_model=256, d_ff=700, n_heads=4)
    lay_out_for_few_rows(model)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            with torch.inference_mode():
                found.append(steps(model, 3, sentences=4, beams=3))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_whoever_looks_on_sees_everything(taken):
    """Attention weights are recorded, hooks are called, and the answer stays."""
    model = make_transformer(5)
    plain = copy.deepcopy(model)
    lay_out_for_few_rows(model)
    with torch.inference_mode():
        expected = steps(model, 5, sentences=2, beams=2)
        taken.clear()
        with clearhead.record_attention(model) as maps, clearhead.record_attention(plain) as plain_maps:
            recorded = steps(model, 5, sentences=2, beams=2)
            steps(plain, 5, sentences=2, beams=2)
        seen: list[object] = []
        handle = model.decoder.layers[1].feed_forward.register_forward_hook(lambda *_: seen.append(1))
        hooked = steps(model, 5, sentences=2, beams=2)
        handle.remove()
    assert maps.keys() == plain_maps.keys()
    for name, weights in maps.items():
        torch.testing.assert_close(weights, plain_maps[name])
    assert len(seen) == 7
    assert len(taken) == 7  # the other layer's, while one had a hook
    for found in (recorded, hooked):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_changed_weights_are_taken_over():
    model = make_transformer(6)
    packed = copy.deepcopy(model)
    lay_out_for_few_rows(packed)
    with torch.inference_mode():
        steps(packed, 6, sentences=2, beams=1)
    with torch.no_grad():
        for one in (model, packed):
            layer = one.decoder.layers[0]
            layer.self_attention.w_k.weight.mul_(0.5)
            layer.add_and_norm_2.norm.beta.add_(1.0)
            layer.feed_forward.w_2.bias.add_(1.0)
        expected, found = (steps(one, 6, sentences=2, beams=1) for one in (model, packed))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def through_a_file(model, tmp_path):
    torch.save(model, tmp_path / "model.pt")
    return torch.load(tmp_path / "model.pt", weights_only=False)


@pytest.mark.parametrize("copied", [lambda model, _: copy.deepcopy(model), through_a_file], ids=["copied", "loaded"])
def test_a_copy_lives_alone(copied, tmp_path, taken):
    model = make_transformer(7)
    lay_out_for_few_rows(model)
    other = copied(model, tmp_path)
    with torch.inference_mode():
        expected = steps(model, 7, sentences=2, beams=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    taken.clear()
    with torch.inference_mode():
        found = steps(other, 7, sentences=2, beams=2)
    assert len(taken) == 2 * 7
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_training_and_gradients_go_through_torch(taken):
    model = make_transformer(8, dropout=0.5)
    lay_out_for_few_rows(model)
    with torch.no_grad():
        model.train()
        steps(model, 8, sentences=2, beams=1)
        model.eval()
    assert not taken
    model.requires_grad_(True)
    assert all(logits.requires_grad for logits in steps(model, 8, sentences=1, beams=1))
    assert not taken


def test_unknown_parts_keep_their_own_step():
    """A layer whose parts somebody has replaced is left alone."""
    model = make_transformer(9)

    class Network(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin()

    model.decoder.layers[0].feed_forward = Network()
    expected = copy.deepcopy(model)
    lay_out_for_few_rows(model)
    assert not hasattr(model.decoder.layers[0], "native")
    assert isinstance(model.decoder.layers[1].native, NativeCall)
    with torch.inference_mode():
        for one, other in zip(*(steps(each, 9, sentences=2, beams=2) for each in (model, expected)), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_replaced_moved_and_swapped_weights_are_taken_over():
    """By `load_state_dict(assign=True)`, by another type and back, by new parameters and new modules."""
    source, target = torch.tensor([[4, 5, 6, 2]]), torch.tensor([[1, 7, 5]])

    def swap(model: Transformer) -> None:
        torch.manual_seed(3)
        layer = model.decoder.layers[0]
        layer.self_attention.w_q = torch.nn.Linear(12, 12).requires_grad_(False)
        layer.add_and_norm_1.norm.gamma = torch.nn.Parameter(torch.rand(12), requires_grad=False)
        model.encoder.layers[0].feed_forward.w_1.weight = torch.nn.Parameter(torch.rand(17, 12), requires_grad=False)
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()

    other = make_transformer(13).state_dict()
    for change in (
        lambda model: model.load_state_dict(other, assign=True), lambda model: model.double().float(),
        lambda model: model.bfloat16().float(), swap,
    ):  # fmt: skip
        plain = make_transformer(12)
        packed = copy.deepcopy(plain)
        lay_out_for_few_rows(packed)
        for model in (plain, packed):
            with torch.no_grad():
                model(source, target)
                change(model)
                model.requires_grad_(False).eval()
        with torch.no_grad():
            torch.testing.assert_close(packed(source, target), plain(source, target), rtol=1e-4, atol=1e-4)
            for one, two in zip(*(steps(each, 12, sentences=2, beams=2) for each in (packed, plain)), strict=True):
                torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


def test_shapes_that_do_not_fit_are_refused():
    """Torch says so; a kernel would read what isn't its own."""
    model = make_transformer(14)
    lay_out_for_few_rows(model)
    layer = model.encoder.layers[0]
    with torch.inference_mode():
        for wrong in (
            lambda: model.projection(torch.randn(2, 11)), lambda: layer(torch.randn(1, 3, 6)),
            lambda: layer(torch.randn(3, 6, 12), torch.ones(3, 1, 1, 4, dtype=torch.bool)),
        ):  # fmt: skip
            with pytest.raises((ValueError, RuntimeError)):
                wrong()
        x, whole = torch.randn(3, 6, 12), torch.ones(3, 1, 1, 1, dtype=torch.bool)
        assert torch.equal(layer(x, whole), layer(x))


@pytest.mark.parametrize("trained", ["bias", "gamma"])
def test_gradients_of_a_few_parameters_are_not_lost(trained):
    plain = make_transformer(15)
    packed = copy.deepcopy(plain)
    lay_out_for_few_rows(packed)
    gradients = []
    for model in (plain, packed):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.endswith(trained))
        model(torch.tensor([[4, 5, 2]]), torch.tensor([[1, 6]])).square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if name.endswith(trained)})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-4)


def test_it_can_be_laid_out_in_inference_mode():
    with torch.inference_mode():
        model = Transformer(ModelConfig(source_vocab=9, target_vocab=9, d_model=12, d_ff=17, n_heads=2)).eval()
        lay_out_for_few_rows(model)
        assert model(torch.tensor([[4, 2]]), torch.tensor([[1]])).isfinite().all()


def test_a_search_ends_where_nothing_is_a_number():
    model = make_transformer(16)
    for packed in (False, True):
        if packed:
            lay_out_for_few_rows(model)
        with torch.no_grad():
            model.decoder.layers[0].add_and_norm_1.norm.gamma.fill_(torch.nan)
        with pytest.raises(RunError, match="not all finite"):
            search(model, [[4, 5, 2]], DecodingOptions(beam_size=2))
