"""The position-wise feed-forward network (section 3.3), and the gated one of LLaMA."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import FeedForward, ModelConfig
from clearhead.parts.dropout import Dropout

Activation = Callable[[Tensor], Tensor]


class PositionwiseFeedForward(nn.Module):
    """`FFN(x) = max(0, x W_1 + b_1) W_2 + b_2`, the same at every position (section 3.3, equation 2).

    Attention only averages; this is where a layer's non-linear capacity lies. Dropout falls between the two matrices.
    Another `activation` may stand in for the `max`.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        dropout: float = 0.0,
        activation: Activation = torch.relu_,
        biases: bool = True,
    ) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff, bias=biases)
        self.w_2 = nn.Linear(d_ff, d_model, bias=biases)
        self.dropout = Dropout(dropout)
        self.activation = activation

    def forward(self, x: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m"]:
        """Transform every position by itself."""
        return self.w_2(self.dropout(self.activation(self.w_1(x))))


class GatedFeedForward(nn.Module):
    """`FFN(x) = (silu(x W_1) * x W_3) W_2`: what one matrix finds, a second lets through (Shazeer, 2020, "SwiGLU").

    Three matrices instead of two; so that the cost stays, `d_ff` is usually 2/3 of what it would be without a gate.
    """

    def __init__(self, d_model: int, d_ff: int, *, dropout: float = 0.0, biases: bool = False) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff, bias=biases)
        self.w_2 = nn.Linear(d_ff, d_model, bias=biases)
        self.w_3 = nn.Linear(d_model, d_ff, bias=biases)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m"]:
        """Transform every position by itself."""
        return self.w_2(self.dropout(F.silu(self.w_1(x)) * self.w_3(x)))


def make_feed_forward(config: ModelConfig) -> nn.Module:
    """The feed-forward network of the model's shape."""
    sizes, dropout, biases = (config.d_model, config.d_ff), config.feed_forward_dropout_rate, config.biases
    if config.feed_forward == "swiglu":
        return GatedFeedForward(*sizes, dropout=dropout, biases=biases)
    activation = make_activation(config.feed_forward)
    return PositionwiseFeedForward(*sizes, dropout=dropout, activation=activation, biases=biases)


def make_activation(kind: FeedForward) -> Activation:
    """The function between the two matrices."""
    match kind:
        case "relu":
            return torch.relu_  # in place: nothing else needs what the first matrix gave
        case "gelu":
            return F.gelu
        case "gelu_tanh":
            return partial(F.gelu, approximate="tanh")
        case "silu" | "swiglu":
            return F.silu
        case _:
            assert_never(kind)
