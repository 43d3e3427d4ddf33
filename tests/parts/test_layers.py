"""Layers and stacks: equal to torch's own with copied weights, outputs and every gradient."""

import math

import pytest
import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.layers import AddAndNorm, Decoder, DecoderLayer, Encoder, EncoderLayer

B, S, T, HEADS, WIDTH, F, LAYERS = 3, 7, 5, 2, 11, 13, 3
M = HEADS * WIDTH

SOURCE_LENGTHS = torch.tensor([S, 4, 1])
TARGET_LENGTHS = torch.tensor([2, T, 3])


def real(lengths, longest):
    """`True` at the real positions of sequences padded on the right."""
    return torch.arange(longest) < lengths[:, None]


def config(**fields):
    shape = {
        "source_vocab": 1,
        "target_vocab": 1,
        "d_model": M,
        "d_ff": F,
        "n_heads": HEADS,
        "encoder_layers": LAYERS,
        "decoder_layers": LAYERS,
        "dropout": 0.0,
        "norm_epsilon": 1e-3,  # large enough for a misplaced epsilon to show
    }
    return ModelConfig(**{**shape, **fields})


def randomized(module, dtype):
    """No parameter keeps a value that could hide its absence: no bias is 0, no gain 1."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(std=0.3)
            if name.endswith("gamma"):
                parameter += 1
    return module.to(dtype)


# -- the table of names: ours, torch's, and which rows of torch's ---------------------------------------------------


def attention_twins(ours, theirs):
    for i, projection in enumerate((ours.w_q, ours.w_k, ours.w_v)):
        rows = slice(i * M, (i + 1) * M)
        yield projection.weight, theirs.in_proj_weight, rows
        yield projection.bias, theirs.in_proj_bias, rows
    yield from linear_twins(ours.w_o, theirs.out_proj)


def linear_twins(ours, theirs):
    yield ours.weight, theirs.weight, slice(None)
    yield ours.bias, theirs.bias, slice(None)


def norm_twins(ours, theirs):
    yield ours.gamma, theirs.weight, slice(None)
    yield ours.beta, theirs.bias, slice(None)


def feed_forward_twins(ours, theirs):
    yield from linear_twins(ours.w_1, theirs.linear1)
    yield from linear_twins(ours.w_2, theirs.linear2)


def layer_twins(ours, theirs):
    yield from attention_twins(ours.self_attention, theirs.self_attn)
    yield from feed_forward_twins(ours.feed_forward, theirs)
    yield from norm_twins(ours.add_and_norm_1.norm, theirs.norm1)
    yield from norm_twins(ours.add_and_norm_2.norm, theirs.norm2)
    if isinstance(ours, DecoderLayer):
        yield from attention_twins(ours.cross_attention, theirs.multihead_attn)
        yield from norm_twins(ours.add_and_norm_3.norm, theirs.norm3)


def stack_twins(ours, theirs):
    for layer, other in zip(ours.layers, theirs.layers, strict=True):
        yield from layer_twins(layer, other)
    if theirs.norm is not None:
        yield from norm_twins(ours.norm, theirs.norm)


def copy_weights(twins, ours, theirs):
    twins = list(twins)
    assert {id(parameter) for parameter, _, _ in twins} == {id(parameter) for parameter in ours.parameters()}
    assert {id(parameter) for _, parameter, _ in twins} == {id(parameter) for parameter in theirs.parameters()}
    with torch.no_grad():
        for parameter, other, rows in twins:
            other[rows] = parameter
    return twins


def assert_equal_with_gradients(twins, ours, theirs, ours_inputs, theirs_inputs, where, tolerance):
    """`ours` and `theirs` are outputs; only the real positions, `where`, count."""

    def close(actual, expected):
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)

    close(ours[where], theirs[where])
    direction = torch.randn(ours[where].shape, generator=torch.Generator().manual_seed(5)).to(ours)
    for output in (ours, theirs):
        (output[where] * direction).sum().backward()
    for parameter, other, rows in twins:
        close(parameter.grad, other.grad[rows])
        assert parameter.grad.any()
    for x, y in zip(ours_inputs, theirs_inputs, strict=True):
        close(x.grad, y.grad)
        assert x.grad.any()


def inputs(dtype, *lengths):
    torch.manual_seed(2)
    ours = [torch.randn(B, length, M, dtype=torch.float64).to(dtype).requires_grad_() for length in lengths]
    return ours, [x.detach().clone().requires_grad_() for x in ours]


def torch_layer(kind, norm_position, dtype):
    return kind(
        M,
        HEADS,
        F,
        dropout=0.0,
        batch_first=True,
        norm_first=norm_position == "pre",
        layer_norm_eps=1e-3,
        dtype=dtype,
    )


def torch_norm(norm_position, dtype):
    return nn.LayerNorm(M, eps=1e-3, dtype=dtype) if norm_position == "pre" else None


KINDS = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=["float32", "float64"]
)
NORMS = pytest.mark.parametrize("norm_position", ["post", "pre"])


@KINDS
@NORMS
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("whole_stack", [False, True], ids=["layer", "stack"])
def test_the_encoder_equals_torchs(whole_stack, padded, norm_position, dtype, tolerance):
    shape = config(norm_position=norm_position)
    ours = randomized(Encoder(shape) if whole_stack else EncoderLayer(shape), dtype)
    theirs = torch_layer(nn.TransformerEncoderLayer, norm_position, dtype)
    if whole_stack:
        theirs = nn.TransformerEncoder(theirs, LAYERS, torch_norm(norm_position, dtype), enable_nested_tensor=False)
    twins = copy_weights((stack_twins if whole_stack else layer_twins)(ours, theirs), ours, theirs)

    (x,), (y,) = inputs(dtype, S)
    where = real(SOURCE_LENGTHS if padded else torch.full((B,), S), S)
    output = ours(x, where[:, None, None, :] if padded else None)
    expected = theirs(y, src_key_padding_mask=~where if padded else None)
    assert_equal_with_gradients(twins, output, expected, [x], [y], where, tolerance)


@KINDS
@NORMS
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("whole_stack", [False, True], ids=["layer", "stack"])
def test_the_decoder_equals_torchs(whole_stack, padded, norm_position, dtype, tolerance):
    shape = config(norm_position=norm_position)
    ours = randomized(Decoder(shape) if whole_stack else DecoderLayer(shape), dtype)
    theirs = torch_layer(nn.TransformerDecoderLayer, norm_position, dtype)
    if whole_stack:
        theirs = nn.TransformerDecoder(theirs, LAYERS, torch_norm(norm_position, dtype))
    twins = copy_weights((stack_twins if whole_stack else layer_twins)(ours, theirs), ours, theirs)

    (x, memory), (y, other_memory) = inputs(dtype, T, S)
    source = real(SOURCE_LENGTHS, S)
    where = real(TARGET_LENGTHS if padded else torch.full((B,), T), T)
    output = ours(x, memory, source[:, None, None, :] if padded else None)
    # Torch is told of the target's padding too: causality alone has to come to the same.
    expected = theirs(
        y,
        other_memory,
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        tgt_key_padding_mask=~where if padded else None,
        memory_key_padding_mask=~source if padded else None,
    )
    assert_equal_with_gradients(twins, output, expected, [x, memory], [y, other_memory], where, tolerance)


# case S1
@NORMS
@pytest.mark.parametrize(("d_model", "n_heads"), [(1, 1), (5, 1), (5, 5), (9, 3)])
def test_narrow_and_odd_widths_work(d_model, n_heads, norm_position):
    shape = config(d_model=d_model, n_heads=n_heads, norm_position=norm_position)
    x, memory = torch.randn(B, T, d_model), torch.randn(B, S, d_model)
    assert Encoder(shape)(memory).shape == memory.shape
    assert Decoder(shape)(x, memory).isfinite().all()


# -- Add & Norm ----------------------------------------------------------------------------------------------------


def normalized(x, module):
    """Layer normalisation in plain operations."""
    centred = x - x.mean(-1, keepdim=True)
    return module.norm.gamma * centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-3) ** 0.5 + module.norm.beta


@NORMS
def test_add_and_norm_is_its_formula(norm_position):
    module = randomized(AddAndNorm(config(norm_position=norm_position)), torch.float64)
    x = torch.randn(B, T, M, dtype=torch.float64)
    expected = x + normalized(x, module).sin() if norm_position == "pre" else normalized(x + x.sin(), module)
    torch.testing.assert_close(module(x, torch.sin), expected, rtol=1e-12, atol=1e-12)


@NORMS
def test_add_and_norm_drops_the_sublayers_output_before_adding(norm_position):
    rate = 0.25
    module = AddAndNorm(config(norm_position=norm_position, dropout=rate)).double()
    x = torch.randn(101, T, M, dtype=torch.float64)
    torch.manual_seed(3)
    output = module(x, lambda y: torch.full_like(y, 7.0))
    if norm_position == "pre":
        added = output - x
    else:  # the norm is undone up to the offset and scale of each position, which are found from two features
        torch.manual_seed(3)
        added = module.dropout(torch.full_like(x, 7.0))
        torch.testing.assert_close(output, normalized(x + added, module), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(added.round(decimals=6).unique(), torch.tensor([0, 7 / (1 - rate)]).double())
    assert abs((added.abs() < 1e-6).double().mean().item() - rate) < 5 * math.sqrt(rate * (1 - rate) / added.numel())
    module.eval()
    expected = x + 7 if norm_position == "pre" else normalized(x + 7, module)
    torch.testing.assert_close(module(x, lambda y: torch.full_like(y, 7.0)), expected)


# -- parts can be replaced -----------------------------------------------------------------------------------------


class Doubled(nn.Module):
    def forward(self, x, *_, **__):
        return 2 * x


@pytest.mark.parametrize("replacement", [Doubled(), nn.Identity(), nn.Sequential()])
def test_a_part_can_be_replaced_by_any_module(replacement):
    factor = 2 if isinstance(replacement, Doubled) else 1
    layer = EncoderLayer(config(norm_position="pre"), feed_forward=replacement).double()
    assert layer.feed_forward is replacement
    x = torch.randn(B, S, M, dtype=torch.float64)
    attended = x + layer.self_attention(layer.add_and_norm_1.norm(x))
    torch.testing.assert_close(layer(x), attended + factor * normalized(attended, layer.add_and_norm_2))


def test_every_part_of_a_decoder_layer_can_be_replaced():
    class Mine(MultiHeadAttention):
        """The decoder asks more of its attention than a call: keys and values for the cache."""

    parts = {"self_attention": Mine(M, 1), "cross_attention": Mine(M, 1), "feed_forward": Doubled()}
    layer = DecoderLayer(config(), **parts)
    assert all(getattr(layer, name) is part for name, part in parts.items())


@pytest.mark.parametrize("field", ["dropout", "attention_dropout", "feed_forward_dropout"])
@pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
def test_each_rate_acts_in_training_only(kind, field):
    torch.manual_seed(0)
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "feed_forward_dropout": 0.0}
    layer, calm = kind(config(**{**rates, field: 0.5})), kind(config(**rates))
    calm.load_state_dict(layer.state_dict())
    x = [torch.randn(B, T, M), torch.randn(B, S, M)][: 1 + (kind is DecoderLayer)]
    assert not torch.equal(layer(*x), layer(*x))
    layer.eval()
    assert torch.equal(layer(*x), calm(*x))
