"""Layer normalisation (Ba, Kiros and Hinton, 2016), the Norm of the paper's "Add & Norm"; and LLaMA's, without mean."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import ModelConfig


def layer_norm(
    x: Float[Tensor, "*b m"], gamma: Float[Tensor, " m"], beta: Float[Tensor, " m"], epsilon: float
) -> Float[Tensor, "*b m"]:
    """`gamma * (x - mean) / sqrt(variance + epsilon) + beta` over the features of one position.

    The variance is the biased one (divided by `m`, not by `m - 1`), and epsilon stands inside the root.
    """
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return gamma * (x - mean) / torch.sqrt(variance + epsilon) + beta


class LayerNorm(nn.Module):
    """`layer_norm` with a learned gain and bias, run by torch's fused kernel.

    It looks at one position only: neither the batch nor the length of a sentence has a say, which is why sequences
    take it rather than batch normalisation.
    """

    def __init__(self, d_model: int, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))
        self.epsilon = epsilon

    def forward(self, x: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m"]:
        """Normalise every position by itself."""
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.epsilon)


def rms_norm(x: Float[Tensor, "*b m"], gamma: Float[Tensor, " m"], epsilon: float) -> Float[Tensor, "*b m"]:
    """`gamma * x / sqrt(mean(x ** 2) + epsilon)` over the features of one position."""
    return gamma * x / torch.sqrt(x.square().mean(-1, keepdim=True) + epsilon)


class RMSNorm(nn.Module):
    """`rms_norm` with a learned gain: layer normalisation that doesn't take the mean away (Zhang and Sennrich, 2019).

    Torch's kernel runs; it squares in float32 whatever the type of `x`.
    """

    def __init__(self, d_model: int, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.epsilon = epsilon

    def forward(self, x: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m"]:
        """Normalise every position by itself."""
        return F.rms_norm(x, self.gamma.shape, self.gamma, self.epsilon)


def make_norm(config: ModelConfig) -> nn.Module:
    """The normalisation of the model's shape."""
    norm = RMSNorm if config.norm == "rms" else LayerNorm
    return norm(config.d_model, epsilon=config.norm_epsilon)
