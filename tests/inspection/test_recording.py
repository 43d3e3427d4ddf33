"""Recording attention: every map is there, has the right shape and zeros, and looking changes nothing."""

import pytest
import torch
import torch.nn.functional as F

import clearhead
from clearhead.config import ModelConfig
from clearhead.models.transformer import Transformer

HEADS, ENCODER_LAYERS, DECODER_LAYERS = 2, 2, 3

SOURCE = torch.tensor([[3, 4, 5, 6, 7, 8, 2], [5, 9, 2, 0, 0, 0, 0], [4, 4, 8, 7, 2, 0, 0]])
TARGET = torch.tensor([[1, 5, 6, 7, 8], [1, 9, 0, 0, 0], [1, 3, 4, 0, 0]])


@pytest.fixture(params=["post", "pre"])
def model(request):
    torch.manual_seed(0)
    shape = {"source_vocab": 11, "target_vocab": 13, "d_model": 14, "d_ff": 17, "n_heads": HEADS}
    layers = {"encoder_layers": ENCODER_LAYERS, "decoder_layers": DECODER_LAYERS}
    rates = {"dropout": 0.2, "attention_dropout": 0.5}
    model = Transformer(ModelConfig(**shape, **layers, **rates, norm_position=request.param))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


def names():
    encoder = [f"encoder.layers.{i}.self_attention" for i in range(ENCODER_LAYERS)]
    decoder = [f"decoder.layers.{i}.{kind}_attention" for i in range(DECODER_LAYERS) for kind in ("self", "cross")]
    return encoder + decoder


# case I1
@pytest.mark.parametrize("training", [False, True])
def test_every_layer_and_head_has_its_map(model, training):
    model.train(training)
    with clearhead.record_attention(model) as maps:
        model(SOURCE, TARGET)
    assert sorted(maps) == sorted(names())
    sizes = {"encoder": (7, 7), "self": (5, 5), "cross": (5, 7)}
    hidden = SOURCE == 0
    for name, weights in maps.items():
        kind = "encoder" if name.startswith("encoder") else "self" if "self" in name else "cross"
        assert weights.shape == (3, HEADS, *sizes[kind])
        assert not weights.requires_grad
        # Before dropout, rows sum to one even in training.
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        if kind == "self":
            future = torch.ones(5, 5, dtype=torch.bool).triu(1)
            assert (weights[..., future] == 0).all()
            assert (weights[..., ~future] > 0).all()
        else:
            assert (weights.transpose(1, 3)[hidden] == 0).all()
            assert (weights.transpose(1, 3)[~hidden] > 0).all()


# cases I2, M2
@pytest.mark.parametrize("training", [False, True])
def test_looking_changes_neither_logits_nor_gradients(model, training):
    model.train(training)

    def run():
        torch.manual_seed(1)
        logits = model(SOURCE, TARGET)
        loss = F.cross_entropy(logits.flatten(0, 1), TARGET.flatten())
        return [logits, *torch.autograd.grad(loss, list(model.parameters())), torch.rand(3)]

    plain = run()
    with clearhead.record_attention(model):
        watched = run()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(plain, run(), strict=True))


# case I1
def test_a_map_is_what_the_layer_used(model):
    """Weights times values, through the output matrix, give what the attention put out."""
    attention = model.decoder.layers[1].cross_attention
    seen = {}
    handle = attention.register_forward_hook(lambda _, inputs, output: seen.update(inputs=inputs, output=output))
    with clearhead.record_attention(model) as maps, torch.no_grad():
        model(SOURCE, TARGET)
        handle.remove()
        value = attention.w_v(seen["inputs"][1]).view(3, 7, HEADS, 7)  # b k h d
        heads = torch.einsum("bhqk,bkhd->bqhd", maps["decoder.layers.1.cross_attention"], value)
        torch.testing.assert_close(attention.w_o(heads.flatten(2)), seen["output"], rtol=1e-5, atol=1e-5)


# cases I1, I2
def test_stepwise_decoding_shows_the_rows_of_the_whole(model):
    with clearhead.record_attention(model) as maps, torch.inference_mode():
        model(SOURCE, TARGET)
    whole = dict(maps)

    def decode():
        with torch.inference_mode():
            cache = model.start_cache(model.encode(SOURCE))
            for position, token in enumerate(TARGET.split(1, 1)):
                yield position, model.step(token, cache)

    plain = [logits for _, logits in decode()]
    with clearhead.record_attention(model) as maps:
        for position, logits in decode():
            assert torch.equal(logits, plain[position])
            for name in (name for name in names() if name.startswith("decoder")):
                keys = position + 1 if "self" in name else 7
                assert maps[name].shape == (3, HEADS, 1, keys)
                expected = whole[name][:, :, position : position + 1, :keys]
                torch.testing.assert_close(maps[name], expected, rtol=1e-4, atol=1e-6)


def test_recording_ends_with_the_context_and_after_an_error(model):
    with clearhead.record_attention(model) as maps:
        pass
    model(SOURCE, TARGET)
    assert maps == {}
    with pytest.raises(ZeroDivisionError), clearhead.record_attention(model) as maps:
        1 / 0  # noqa: B018
    model(SOURCE, TARGET)
    assert maps == {}


def test_an_inner_recording_gives_back_to_the_outer(model):
    with clearhead.record_attention(model) as outer:
        with clearhead.record_attention(model.encoder) as inner:
            model(SOURCE, TARGET)
        assert sorted(inner) == [f"layers.{i}.self_attention" for i in range(ENCODER_LAYERS)]
        assert not any(name.startswith("encoder") for name in outer)
        model(SOURCE, TARGET)
        assert sorted(outer) == sorted(names())


def test_two_models_are_recorded_apart(model):
    other = Transformer(model.config).eval()
    with clearhead.record_attention(model) as maps, clearhead.record_attention(other) as others:
        model(SOURCE, TARGET)
        assert others == {}
        other(SOURCE, TARGET)
    assert all(not torch.equal(maps[name], others[name]) for name in names() if "layers.0" in name)
