"""Layer normalisation against its formula."""

import math

import pytest
import torch

from clearhead.parts.normalization import LayerNorm, RMSNorm, layer_norm, rms_norm


def by_loops(x, gamma, beta, epsilon):
    """One position at a time, in Python's own floats."""
    rows = []
    for row in x.reshape(-1, x.size(-1)).tolist():
        mean = sum(row) / len(row)
        variance = sum((value - mean) ** 2 for value in row) / len(row)
        root = math.sqrt(variance + epsilon)
        rows.append([g * (v - mean) / root + b for v, g, b in zip(row, gamma.tolist(), beta.tolist(), strict=True)])
    return torch.tensor(rows, dtype=torch.float64).view_as(x)


@pytest.mark.parametrize("epsilon", [1e-5, 0.3])
@pytest.mark.parametrize("shape", [(2, 3, 7), (5, 11), (13,), (3, 1)])
def test_both_equal_the_formula(shape, epsilon):
    torch.manual_seed(0)
    x = 3 + 2 * torch.randn(*shape, dtype=torch.float64)
    module = LayerNorm(shape[-1], epsilon=epsilon).double()
    with torch.no_grad():
        module.gamma.normal_()
        module.beta.normal_()
    expected = by_loops(x, module.gamma, module.beta, epsilon)
    torch.testing.assert_close(module(x), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer_norm(x, module.gamma, module.beta, epsilon), expected, rtol=1e-12, atol=1e-12)


def test_it_starts_with_mean_0_and_variance_1():
    x = LayerNorm(97)(5 + 7 * torch.randn(11, 97))
    torch.testing.assert_close(x.mean(-1), torch.zeros(11), rtol=0, atol=1e-5)
    torch.testing.assert_close(x.var(-1, unbiased=False), torch.ones(11), rtol=1e-4, atol=0)


def test_a_constant_position_gives_the_bias():
    module = LayerNorm(7)
    torch.nn.init.normal_(module.beta)
    assert torch.equal(module(torch.full((2, 3, 7), 4.0)), module.beta.expand(2, 3, 7))


@pytest.mark.parametrize("epsilon", [1e-5, 0.3])
def test_the_one_without_mean_equals_its_formula(epsilon):
    torch.manual_seed(0)
    x = 3 + 2 * torch.randn(5, 7, dtype=torch.float64)
    module = RMSNorm(7, epsilon=epsilon).double()
    torch.nn.init.normal_(module.gamma)
    gains = module.gamma.tolist()
    rows = []
    for row in x.tolist():
        root = math.sqrt(sum(value * value for value in row) / 7 + epsilon)
        rows.append([gain * value / root for gain, value in zip(gains, row, strict=True)])
    expected = torch.tensor(rows, dtype=torch.float64)
    torch.testing.assert_close(rms_norm(x, module.gamma, epsilon), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(module(x), expected, rtol=1e-12, atol=1e-12)
