"""The feed-forward network against its formula."""

import math

import numpy as np
import pytest
import torch

from clearhead.parts.feed_forward import GatedFeedForward, PositionwiseFeedForward, make_activation


def test_it_is_equation_2_at_every_position():
    torch.manual_seed(0)
    module = PositionwiseFeedForward(5, 11, dropout=0.5).double().eval()
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    w_1, b_1, w_2, b_2 = (parameter.detach().numpy() for parameter in module.parameters())
    expected = np.empty((2, 3, 5))
    for place in np.ndindex(2, 3):
        expected[place] = np.maximum(0, x[place].numpy() @ w_1.T + b_1) @ w_2.T + b_2
    torch.testing.assert_close(module(x), torch.from_numpy(expected), rtol=1e-12, atol=1e-12)


def test_dropout_falls_between_the_two_matrices():
    torch.manual_seed(0)
    rate, width, x = 0.25, 101, torch.ones(7, 101, 101)
    module = PositionwiseFeedForward(width, width, dropout=rate)
    with torch.no_grad():
        # The first matrix passes each feature on, the second adds every two neighbours: one of them can be missing.
        module.w_1.weight.copy_(torch.eye(width))
        module.w_2.weight.copy_(torch.eye(width) + torch.eye(width).roll(1, 1))
        module.w_1.bias.zero_()
        module.w_2.bias.zero_()
    survivors = (module(x) * (1 - rate)).round().int()
    shares = torch.bincount(survivors.flatten()) / survivors.numel()
    expected = torch.tensor([rate**2, 2 * rate * (1 - rate), (1 - rate) ** 2])
    torch.testing.assert_close(shares, expected, rtol=0, atol=0.01)
    assert torch.equal(module.eval()(x), 2 * x)


@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        ("relu", lambda x: max(0.0, x)),
        ("gelu", lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
        ("gelu_tanh", lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2),
        ("silu", lambda x: x / (1 + math.exp(-x))),
    ],
)
def test_activations_are_their_formulas(kind, formula):
    x = torch.linspace(-4, 4, 41, dtype=torch.float64)
    expected = torch.tensor([formula(value) for value in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(make_activation(kind)(x), expected, rtol=1e-12, atol=1e-12)


def test_the_gated_one_is_its_formula():
    torch.manual_seed(0)
    module = GatedFeedForward(5, 7).double()
    assert [name for name, _ in module.named_parameters()] == ["w_1.weight", "w_2.weight", "w_3.weight"]
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    w_1, w_2, w_3 = (parameter.detach().numpy() for parameter in module.parameters())
    gate, up = x.numpy() @ w_1.T, x.numpy() @ w_3.T
    expected = (gate / (1 + np.exp(-gate)) * up) @ w_2.T
    torch.testing.assert_close(module(x), torch.from_numpy(expected), rtol=1e-12, atol=1e-12)
