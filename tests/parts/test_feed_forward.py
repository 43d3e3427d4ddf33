"""The feed-forward network against its formula."""

import numpy as np
import torch

from clearhead.parts.feed_forward import PositionwiseFeedForward


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
