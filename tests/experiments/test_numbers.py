"""Experiments that train nothing: what they measure has a value that can be worked out, or a wide margin."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from clearhead.decoding.options import DecodingOptions
from clearhead.experiments import cost, masks, normalization, positions, recurrence, residual, scaling
from clearhead.experiments.learning import small_shape
from clearhead.parts.attention import fused_attention, scaled_dot_product_attention
from clearhead.parts.layers import AddAndNorm
from clearhead.parts.masks import causal_mask
from clearhead.parts.normalization import LayerNorm, layer_norm
from clearhead.parts.positions import sinusoids
from clearhead.training.schedules import learning_rate

SEEDS = [1, 2, 3]


# scaling


@pytest.mark.parametrize("seed", SEEDS)
def test_scaling_keeps_variance_entropy_and_gradient(seed: int) -> None:
    torch.manual_seed(seed)
    raw, scaled = (scaling.random_softness(1024, 8, on) for on in (False, True))
    assert scaled.variance == pytest.approx(1.0, rel=0.1)
    assert raw.variance == pytest.approx(1024, rel=0.1)
    assert raw.entropy < 0.3 < 3.0 < scaled.entropy
    assert raw.gradient < 0.05 * scaled.gradient


def test_the_norm_of_the_jacobian_is_that_of_autograd() -> None:
    scores = torch.randn(7, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), scores)
    assert float(scaling.jacobian_norm(scores.softmax(-1))) == pytest.approx(float(jacobian.norm()), rel=1e-12)


def test_softness_is_that_of_the_formula() -> None:
    query, key = torch.randn(2, 5, 3, 11).unbind(0)
    for scaled in (False, True):
        scores = query.double() @ key.double().transpose(-2, -1) / (math.sqrt(11) if scaled else 1.0)
        found = scaling.softness(query, key, scaled)
        entropy = torch.distributions.Categorical(logits=scores).entropy().mean()
        assert found.variance == pytest.approx(float(scores.var()), rel=1e-4)
        assert found.entropy == pytest.approx(float(entropy), rel=1e-4)


# positions


def test_order_is_invisible_without_positions() -> None:
    assert positions.order_seen(nn.Identity()) < 1e-5
    assert positions.order_seen(None) > 0.05


@pytest.mark.parametrize("k", [0, 1, 7, 400])
def test_a_rotation_moves_every_position(k: int) -> None:
    assert positions.rotation_error(k, d_model=22, positions=31) < 1e-5
    matrix = positions.rotation(k, 22)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(22, dtype=torch.float64))


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    query, key = torch.randn(2, 1, 1, 1, 14).expand(2, 1, 1, 13, 14)
    scores = (positions.rotate(query) @ positions.rotate(key).transpose(-2, -1))[0, 0]
    torch.testing.assert_close(scores[1:, 1:], scores[:-1, :-1], atol=1e-4, rtol=1e-4)
    # ... and is the turn by R_k that moves a sinusoid from its place.
    turned = positions.rotate(key)[0, 0, 5].double()
    torch.testing.assert_close(turned, key[0, 0, 5].double() @ positions.rotation(5, 14), atol=1e-5, rtol=1e-5)
    assert sinusoids(3, 14).shape == (3, 14)


# normalization


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1, 8])
def test_the_batch_moves_batch_norm_alone(seed: int, size: int) -> None:
    torch.manual_seed(seed)
    assert normalization.moved_by_batch(LayerNorm(normalization.WIDTH), size) < 1e-5
    assert normalization.moved_by_batch(normalization.BatchNorm(normalization.WIDTH), size) > 0.1


def test_the_variance_of_the_part_is_the_biased_one() -> None:
    x = torch.randn(3, 5, 11, dtype=torch.float64)
    ones, zeros = torch.ones(11, dtype=torch.float64), torch.zeros(11, dtype=torch.float64)
    for correction, equal in ((0, True), (1, False)):
        deviation = x.var(-1, keepdim=True, correction=correction).sqrt()
        expected = (x - x.mean(-1, keepdim=True)) / deviation
        assert torch.allclose(layer_norm(x, ones, zeros, 1e-15), expected) == equal


# residual


@pytest.mark.parametrize("depth", [12, 24])
def test_gradients_are_lost_without_residual_and_norm(depth: int) -> None:
    kept = {kind: residual.gradient_by_layer(kind, depth) for kind in residual.KINDS}
    arrives = {kind: norms[0] / norms[-1] for kind, norms in kept.items()}
    assert len(kept["pre"]) == depth
    assert arrives["neither"] < 0.01
    assert 0.3 < arrives["post"] < 100
    assert 0.3 < arrives["pre"] < 100


@pytest.mark.parametrize("position", ["post", "pre"])
def test_add_and_norm_is_its_formula(position: str) -> None:
    part = AddAndNorm(small_shape(3, width=6, n_heads=2, norm_position=position)).double()
    x, matrix = torch.randn(2, 5, 6, dtype=torch.float64), torch.randn(6, 6, dtype=torch.float64)

    def normalised(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)

    expected = normalised(x + x @ matrix) if position == "post" else x + normalised(x) @ matrix
    torch.testing.assert_close(part(x, lambda x: x @ matrix), expected)


# masks and causality


def test_the_future_is_what_comes_later() -> None:
    assert causal_mask(3, 3).tolist() == [[u <= t for u in range(3)] for t in range(3)]


@pytest.mark.parametrize("seed", SEEDS)
def test_only_minus_infinity_hides_at_every_scale(seed: int) -> None:
    torch.manual_seed(seed)
    for scale in (1.0, 1e4, 1e6):
        assert masks.hidden_weight("-inf", scale) == 0.0
        assert masks.hidden_weight("forgotten", scale) > 0.2
    assert masks.hidden_weight("-1e4", 1.0) == 0.0
    assert masks.hidden_weight("-1e4 added", 1e6) > 0.1
    assert masks.hidden_weight("0/1 added", 1.0) > 0.1


def test_a_row_without_a_key() -> None:  # case M1
    assert masks.dead_row("ours") == (0.0, "no")
    weight, poisoned = masks.dead_row("-inf")
    assert math.isnan(weight)
    assert poisoned == "yes"
    assert masks.dead_row("-1e9") == (pytest.approx(1.0), "no")


def test_one_mask_serves_all_heads() -> None:
    assert masks.broadcast_difference() == 0.0


def test_half_precision_has_no_room_for_a_large_number() -> None:
    assert masks.half_precision("-inf") == "-inf"
    assert masks.half_precision("-1e4") == "-10000"
    assert "overflow" in masks.half_precision("-1e9")


# schedules and search


def test_the_rate_of_the_paper_is_its_formula() -> None:
    for update in (1, 17, 4000, 5000):
        expected = 512**-0.5 * min(update**-0.5, update * 4000**-1.5)
        assert learning_rate("paper", update, peak=0.0, warmup=4000) == pytest.approx(expected, rel=1e-12)


def test_the_score_of_a_hypothesis_is_its_formula() -> None:
    score = DecodingOptions(length_penalty=0.6).score(-3.0, 11)
    assert score == pytest.approx(-3.0 / ((5 + 11) / 6) ** 0.6, rel=1e-12)


# cost


def test_operations_are_those_of_the_formula() -> None:
    for n in (16, 48):
        assert cost.attention_operations(n) == 2 * 2 * n * n * cost.WIDTH
    assert cost.attention_share(24, 4) == pytest.approx(24 / (24 + 6 * 4))


def test_memory_grows_with_the_square_unless_fused() -> None:
    formula, fused = ([cost.kept_bytes(path, n) for n in (256, 512)] for path in cost.PATHS.values())
    assert formula[1] > 3 * formula[0]
    assert fused[1] < 2.2 * fused[0]
    assert formula[0] >= 4 * cost.HEADS * 256 * 256 > fused[0]


def test_both_paths_of_the_cost_are_one_attention() -> None:
    query, key, value = cost.projections(19)
    expected, _ = scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(fused_attention(query, key, value), expected)
    torch.testing.assert_close(cost.PATHS["formula"](query, key, value), expected)


# recurrence


@pytest.mark.parametrize("seed", SEEDS)
def test_an_lstm_loses_the_gradient_over_distance(seed: int) -> None:
    lstm, transformer = (recurrence.gradient_over_distance(kind, [1, 64], seed) for kind in ("LSTM", "Transformer"))
    assert lstm[64] < 1e-4 * lstm[1]
    assert transformer[64] > 0.1 * transformer[1]


def test_both_networks_are_of_one_size() -> None:
    lstm, transformer = (
        sum(p.numel() for p in recurrence.make_network(kind).parameters()) for kind in ("LSTM", "Transformer")
    )
    assert (lstm, transformer) == (25_344, pytest.approx(25_344, rel=0.05))
