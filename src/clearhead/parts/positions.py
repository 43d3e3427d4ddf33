"""Positional encoding (section 3.5): attention alone doesn't see order, so each position adds its own pattern."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.parts.dropout import Dropout


def sinusoids(length: int, d_model: int) -> Float[Tensor, "length m"]:
    """`PE(pos, 2i) = sin(pos / 10000^(2i/m))` and `PE(pos, 2i+1) = cos(pos / 10000^(2i/m))`.

    The power is taken as `exp(-2i/m * ln 10000)`, in float64. An odd width ends on a sine.
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10_000.0) / d_model))
    table = torch.empty(length, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency[: d_model // 2])
    return table.float()


class PositionalEncoding(nn.Module):
    """`Dropout(x + PE)`: adds the sinusoid of each position (section 3.5, and 5.4 for the dropout).

    The table is a buffer: it moves with the model, has no gradient and is not saved. A longer sequence than it holds
    makes it grow: sinusoids are defined for every position.
    """

    table: Float[Tensor, "length m"]

    def __init__(self, d_model: int, *, dropout: float = 0.0, length: int = 512) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(length, d_model), persistent=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "b t m"], start: int = 0) -> Float[Tensor, "b t m"]:
        """Add positions `start`, `start + 1`, … to the embeddings `x`."""
        end = start + x.size(1)
        table = self.table  # of our own: batches may be decoded side by side, and another one may exchange it
        if end > table.size(0):
            grown = sinusoids(max(end, 2 * table.size(0)), x.size(-1))
            self.table = table = grown.to(table)
        return self.dropout(x + table[start:end].to(x.dtype))
