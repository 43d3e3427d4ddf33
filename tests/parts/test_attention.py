"""Attention against the formula written with loops, against torch's module, and the ways in which masks go wrong."""

import math

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError
from torch import nn

from clearhead.errors import ConfigError
from clearhead.parts.attention import (
    MultiHeadAttention,
    ScaledDotProductAttention,
    fused_attention,
    scaled_dot_product_attention,
)
from clearhead.parts.cache import Rows

B, H, Q, K, D = 2, 3, 5, 7, 11  # distinct primes: a swapped axis can't pass

MASKS = {
    "none": None,
    "padding": (B, 1, 1, K),
    "per query": (Q, K),
    "per sentence and query": (B, 1, Q, K),
    "per head": (B, H, Q, K),
}


def numbers(*shape, seed=0, dtype=torch.float64, requires_grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(requires_grad)


def random_mask(shape, seed=0):
    return None if shape is None else torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) > 0.4


def query_key_value(q=Q, k=K, *, dtype=torch.float64, requires_grad=False):
    sizes = ((q, D), (k, D), (k, D))
    return [numbers(B, H, *size, seed=i, dtype=dtype, requires_grad=requires_grad) for i, size in enumerate(sizes)]


def attention_by_loops(query, key, value, mask=None, *, causal=False):
    """Equation 1, one query and one key at a time: the output and the weights."""
    query, key, value = (np.asarray(x, dtype=np.float64) for x in (query, key, value))
    *batch, q, d = query.shape
    k = key.shape[-2]
    allowed = np.ones((*batch, q, k), bool) if mask is None else np.broadcast_to(np.asarray(mask), (*batch, q, k))
    output, weights = np.zeros((*batch, q, value.shape[-1])), np.zeros((*batch, q, k))
    for place in np.ndindex(*batch, q):
        *which, i = place
        visible = [j for j in range(k) if allowed[(*place, j)] and (not causal or j <= k - q + i)]
        exponentials = {j: math.exp(query[place] @ key[(*which, j)] / math.sqrt(d)) for j in visible}
        for j in visible:
            weights[(*place, j)] = exponentials[j] / sum(exponentials.values())
            output[place] += weights[(*place, j)] * value[(*which, j)]
    return torch.from_numpy(output), torch.from_numpy(weights)


def close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# case M9
@pytest.mark.parametrize("q", [Q, K, 13])  # fewer queries than keys, as many, and more: the first then see nothing
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", MASKS)
def test_both_paths_equal_the_formula(kind, causal, q):
    shape = MASKS[kind] and tuple(q if size == Q else size for size in MASKS[kind])
    mask = random_mask(shape)
    query, key, value = query_key_value(q)
    output, weights = attention_by_loops(query, key, value, mask, causal=causal)

    formula, formula_weights = scaled_dot_product_attention(query, key, value, mask, causal=causal)
    close(formula, output)
    close(formula_weights, weights)
    close(fused_attention(query, key, value, mask, causal=causal), output)


def test_the_formula_takes_any_batch_axes_and_any_width_of_values():
    query, key, value = numbers(Q, D), numbers(K, D, seed=1), numbers(K, 13, seed=2)
    output, weights = scaled_dot_product_attention(query, key, value)
    close(output, attention_by_loops(query, key, value)[0])
    close(weights.sum(-1), torch.ones(Q, dtype=torch.float64))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", MASKS)
def test_both_paths_have_the_same_gradients(kind, causal):
    mask, direction = random_mask(MASKS[kind], seed=3), numbers(B, H, Q, D, seed=4)
    inputs = query_key_value(requires_grad=True)
    formula, _ = scaled_dot_product_attention(*inputs, mask, causal=causal)
    fused = fused_attention(*inputs, mask, causal=causal)
    expected = torch.autograd.grad((formula * direction).sum(), inputs)
    for gradient, other in zip(torch.autograd.grad((fused * direction).sum(), inputs), expected, strict=True):
        close(gradient, other, 1e-10)


def test_large_scores_do_not_overflow():
    query, key, value = (1e4 * x for x in query_key_value(dtype=torch.float32))
    for output in (scaled_dot_product_attention(query, key, value)[0], fused_attention(query, key, value)):
        assert output.isfinite().all()


# -- masks ---------------------------------------------------------------------------------------------------------


def both_paths(query, key, value, mask=None, *, causal=False):
    yield scaled_dot_product_attention(query, key, value, mask, causal=causal)[0]
    yield fused_attention(query, key, value, mask, causal=causal)


# case M1
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("q", "k"), [(5, 7), (7, 7), (31, 37)])
def test_a_query_with_nothing_to_see_gives_zeros_and_finite_gradients(q, k, causal, dtype):
    query, key, value = query_key_value(q, k, dtype=dtype, requires_grad=True)
    mask = torch.ones(B, 1, q, k, dtype=torch.bool)
    mask[1] = False  # a sentence that is all padding
    mask[0, 0, 2] = False  # and one query of the other
    for output, alone in zip(
        both_paths(query, key, value, mask, causal=causal),
        both_paths(query[:1], key[:1], value[:1], mask[:1], causal=causal),
        strict=True,
    ):
        assert (output[1] == 0).all()
        assert (output[0, :, 2] == 0).all()
        assert (output[0, :, 3:] != 0).all()
        assert torch.equal(output[:1], alone), "the dead sentence changed the living one"
        with torch.autograd.set_detect_anomaly(True):  # finite on the way, too
            gradients = torch.autograd.grad(output.square().sum() + output.sum(), (query, key, value))
        for gradient in gradients:
            assert gradient.isfinite().all()
            assert (gradient[1] == 0).all()
        assert (gradients[0][0, :, 2] == 0).all()
        assert (gradients[2][0, :, 0] != 0).all()


# case M1
def test_causality_and_left_padding_leave_the_first_query_nothing():
    query, key, value = query_key_value(K, K, dtype=torch.float32, requires_grad=True)
    not_the_first = torch.arange(K) > 0
    for output in both_paths(query, key, value, not_the_first, causal=True):
        assert (output[:, :, 0] == 0).all()
        close(output[:, :, 1], value[:, :, 1], 1e-6)  # the second sees itself alone
        for gradient in torch.autograd.grad(output.sum(), (query, key, value)):
            assert gradient.isfinite().all()


# case M5
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_integer_masks_hide_as_boolean_ones_do(dtype):
    mask = random_mask((B, 1, 1, K))
    for q, causal in ((Q, False), (K, True)):
        inputs = query_key_value(q)
        for integer, boolean, unmasked in zip(
            both_paths(*inputs, mask.to(dtype), causal=causal),
            both_paths(*inputs, mask, causal=causal),
            both_paths(*inputs, causal=causal),
            strict=True,
        ):
            assert torch.equal(integer, boolean)
            assert not torch.allclose(integer, unmasked)


# case M5
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_float_masks_are_refused(dtype):
    mask = random_mask((B, 1, 1, K)).to(dtype)
    inputs = query_key_value()
    # The annotation refuses it before the code does, where the tests enforce the annotations.
    for attend in (scaled_dot_product_attention, fused_attention, ScaledDotProductAttention()):
        with pytest.raises((ConfigError, TypeCheckError), match=r"float|f32|f64|bf16"):
            attend(*inputs, mask)


# cases M4, M9
@pytest.mark.parametrize(("q", "k"), [(7, 7), (5, 7), (1, 7), (3, 5)])
def test_causal_alone_hides_later_keys(q, k):
    query, key, value = query_key_value(q, k)
    later_key, later_value = key.clone(), value.clone()
    later_key[:, :, -1] += 100.0
    later_value[:, :, -1] -= 100.0
    for before, after in zip(
        both_paths(query, key, value, causal=True),
        both_paths(query, later_key, later_value, causal=True),
        strict=True,
    ):
        assert torch.equal(before[:, :, :-1], after[:, :, :-1])
        assert (before[:, :, -1] != after[:, :, -1]).all()


# case M10
@pytest.mark.parametrize("q", [1, 2, 3, 5])
def test_the_queries_are_the_last_positions(q):
    query, key, value = query_key_value(K, K)
    for last, whole in zip(
        both_paths(query[:, :, -q:], key, value, causal=True), both_paths(query, key, value, causal=True), strict=True
    ):
        close(last, whole[:, :, -q:])


# -- dropout -------------------------------------------------------------------------------------------------------


# Attention whose values are the unit vectors shows its weights as its output.
UNIT_VECTORS = torch.eye(103, dtype=torch.float64).expand(B, H, -1, -1)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_falls_on_the_weights(rate):
    torch.manual_seed(7)
    query, key, _ = query_key_value(101, 103)
    dropped, clean = scaled_dot_product_attention(query, key, UNIT_VECTORS, dropout_p=rate)
    kept = dropped != 0
    deviation = math.sqrt(rate * (1 - rate) / kept.numel())
    assert abs(kept.double().mean().item() - (1 - rate)) < 5 * deviation
    close(dropped[kept], (clean / (1 - rate))[kept])
    assert abs(dropped.sum(-1).mean().item() - 1) < 0.05  # on average the rows still sum to one


def test_the_weights_returned_are_those_before_dropout():
    torch.manual_seed(7)
    inputs = query_key_value()
    close(scaled_dot_product_attention(*inputs, dropout_p=0.5)[1], scaled_dot_product_attention(*inputs)[1])


# case M12
def test_the_module_drops_weights_in_training_only():
    rate = 0.3
    torch.manual_seed(7)
    query, key, _ = query_key_value(101, 103)
    query = nn.functional.pad(query, (0, 92)) * math.sqrt(103 / D)  # widened, with the same scores,
    key = nn.functional.pad(key, (0, 92))  # for the fused path wants keys and values of one width
    module = ScaledDotProductAttention(dropout=rate)
    clean = attention_by_loops(query[:1, :1], key[:1, :1], UNIT_VECTORS[:1, :1])[0]

    trained = module(query, key, UNIT_VECTORS)
    kept = trained != 0
    assert abs(kept.double().mean().item() - (1 - rate)) < 0.01
    close(trained[:1, :1][kept[:1, :1]], (clean / (1 - rate))[kept[:1, :1]])
    assert not torch.equal(trained, module(query, key, UNIT_VECTORS))

    module.eval()
    assert torch.equal(module(query, key, UNIT_VECTORS), module(query, key, UNIT_VECTORS))
    close(module(query, key, UNIT_VECTORS)[:1, :1], clean)


# -- many heads ----------------------------------------------------------------------------------------------------


def multi_head(d_model=H * D, n_heads=H, dtype=torch.float64):
    torch.manual_seed(1)
    module = MultiHeadAttention(d_model, n_heads).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.4)
    return module


def multi_head_by_formula(module, x, memory, mask, *, causal=False):
    """`Concat(head_1, …, head_h) W_O`, each head with its own small matrices W_Q_i, W_K_i, W_V_i."""
    d = x.size(-1) // module.n_heads
    heads = []
    for i in range(module.n_heads):
        columns = slice(i * d, (i + 1) * d)
        projected = [
            rows @ layer.weight.T[:, columns] + layer.bias[columns]
            for rows, layer in ((x, module.w_q), (memory, module.w_k), (memory, module.w_v))
        ]
        heads.append(attention_by_loops(*(p.detach() for p in projected), mask, causal=causal)[0])
    return torch.cat(heads, -1) @ module.w_o.weight.T + module.w_o.bias


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention_is_the_papers(causal, masked):
    module, x, memory = multi_head(), numbers(B, Q, H * D), numbers(B, K, H * D, seed=1)
    mask = random_mask((B, 1, Q, K)) if masked else None
    expected = multi_head_by_formula(module, x, memory, None if mask is None else mask[:, 0], causal=causal)
    close(module(x, memory, mask, causal=causal), expected)
    mask = random_mask((B, 1, Q, Q)) if masked else None
    expected = multi_head_by_formula(module, x, x, None if mask is None else mask[:, 0], causal=causal)
    close(module(x, mask=mask, causal=causal), expected)


@pytest.mark.parametrize("n_heads", [1, 3, 11, 33])
def test_multi_head_attention_equals_torchs(n_heads):
    ours, theirs = multi_head(n_heads=n_heads), nn.MultiheadAttention(H * D, n_heads, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.w_q.weight, ours.w_k.weight, ours.w_v.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.w_q.bias, ours.w_k.bias, ours.w_v.bias]))
        theirs.out_proj.load_state_dict(ours.w_o.state_dict())
    x, memory = numbers(B, Q, H * D), numbers(B, K, H * D, seed=1)
    hidden = torch.arange(K) >= torch.tensor([[K], [3]])
    expected, _ = theirs(x, memory, memory, key_padding_mask=hidden)
    close(ours(x, memory, ~hidden[:, None, None, :]), expected)


def test_keys_and_values_projected_before_give_the_same():
    module, x, memory = multi_head(), numbers(B, Q, H * D), numbers(B, K, H * D, seed=1)
    mask = random_mask((B, 1, 1, K))
    rows = Rows(torch.ones(B, Q, dtype=torch.bool))
    found = module.look_at(rows.gather(x)[:, None], *module.keys_and_values(memory), rows, mask)
    assert torch.equal(rows.spread(found[:, 0]), module(x, memory, mask))


def test_only_the_open_rows_are_looked_for():
    module, x, memory = multi_head(), numbers(B, Q, H * D), numbers(B, K, H * D, seed=1)
    mask = random_mask((B, 1, 1, K))
    rows = Rows(random_mask((B, Q)))
    assert 0 < len(rows.gather(x)) < B * Q
    found = module.look_at(rows.gather(x)[:, None], *module.keys_and_values(memory), rows, mask)
    close(found[:, 0], rows.gather(module(x, memory, mask)))


def test_joining_undoes_splitting():
    module, x = multi_head(), numbers(B, Q, H * D)
    heads = module.split_heads(x)
    assert heads.shape == (B, H, Q, D)
    assert torch.equal(heads[:, 1], x[:, :, D : 2 * D])
    assert torch.equal(module.join_heads(heads), x)


# -- looking -------------------------------------------------------------------------------------------------------


# cases M2, I2
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", MASKS)
def test_looking_changes_nothing(kind, causal, training):
    mask = random_mask(MASKS[kind])
    if mask is not None:
        mask[..., :3] = False  # with causality some queries see nothing
    inputs = query_key_value(dtype=torch.float32, requires_grad=True)
    module, seen = ScaledDotProductAttention(dropout=0.5).train(training), []

    def run(recorder):
        module.recorder = recorder
        torch.manual_seed(3)
        output = module(*inputs, mask, causal=causal)
        return [output, *torch.autograd.grad(output.square().sum(), inputs), torch.rand(3)]

    unseen = run(None)
    watched = run(seen.append)
    assert all(torch.equal(a, b) for a, b in zip(unseen, watched, strict=True))

    (weights,) = seen
    assert weights.shape == (B, H, Q, K)
    assert not weights.requires_grad
    expected = attention_by_loops(*(x.detach() for x in inputs), mask, causal=causal)[1]
    close(weights.double(), expected, 1e-6)
    assert (weights[expected == 0] == 0).all()
