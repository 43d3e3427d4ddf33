"""Positions (section 3.5): attention alone doesn't see order.

The paper and most of its heirs add a pattern to each position's embedding: sinusoids, or a learned table. LLaMA turns
queries and keys instead.
"""

from __future__ import annotations

import math
from typing import assert_never

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.parts.dropout import Dropout

Start = int | Int[Tensor, " b"] | Int[Tensor, "b t"]
"""Where a row's tokens stand: consecutive from one position on, for all rows or for each its own; or every token's
position, where several documents share a row."""


def places_of(start: Start, length: int) -> tuple[slice | Tensor, int]:
    """The rows of a table that `length` tokens from `start` on need, and how many rows it has to have."""
    if isinstance(start, int):
        return slice(start, start + length), start + length
    places = start if start.dim() == 2 else start[:, None] + torch.arange(length, device=start.device)
    return places, int(places.max()) + 1


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
        self.register_buffer("table", self.make_table(length, d_model), persistent=False)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "b t m"], start: Start = 0) -> Float[Tensor, "b t m"]:
        """Add positions `start`, `start + 1`, … to the embeddings `x`."""
        places, end = places_of(start, x.size(1))
        table = self.table  # of our own: batches may be decoded side by side, and another one may exchange it
        if end > table.size(0):
            grown = self.make_table(max(end, 2 * table.size(0)), x.size(-1))
            self.table = table = grown.to(table)
        return self.dropout(x + table[places].to(x.dtype))

    @staticmethod
    def make_table(length: int, d_model: int) -> Float[Tensor, "length m"]:
        """The sinusoids of positions 0 to `length - 1`."""
        return sinusoids(length, d_model)


class HalvedPositionalEncoding(PositionalEncoding):
    """The same sinusoids in Marian's order: all sines, then all cosines. Which feature holds which doesn't matter to
    a model that is trained with it; to one that was trained elsewhere it does."""

    @staticmethod
    def make_table(length: int, d_model: int) -> Float[Tensor, "length m"]:
        """The sinusoids of positions 0 to `length - 1`."""
        table = sinusoids(length, d_model)
        return torch.cat([table[:, 0::2], table[:, 1::2]], dim=-1)


class LearnedPositions(nn.Module):
    """`Dropout(x + table[position])`: a learned vector for each position (Gehring et al., 2017; GPT, BERT).

    There are no more positions than the table has: a longer text is a `ConfigError`.
    """

    def __init__(self, length: int, d_model: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(length, d_model))
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table anew."""
        nn.init.normal_(self.table, std=0.02)

    def forward(self, x: Float[Tensor, "b t m"], start: Start = 0) -> Float[Tensor, "b t m"]:
        """Add positions `start`, `start + 1`, … to the embeddings `x`."""
        places, end = places_of(start, x.size(1))
        self.require(end)
        return self.dropout(x + self.table[places])

    def require(self, length: int) -> None:
        """Refuse a text of more positions than there are."""
        if length > self.table.size(0):
            raise ConfigError(f"a text of {length} positions: this model has learned {self.table.size(0)}; cut it")


Rotation = tuple[Float[Tensor, "... t d"], Float[Tensor, "... t d"]]
"""The cosine and the sine of each position's angles; `...` broadcasts over batch and heads."""


class RotaryPositions(nn.Module):
    """Rotary positions (Su et al., 2021): queries and keys are turned, `theta_i = position * base^(-2i/d)`.

    The product of a query and a key then depends on the distance between the two, and on no position alone. Feature `i`
    is turned together with feature `i + d/2`, as in LLaMA's published weights. Nothing is added to the embeddings.
    """

    frequency: Float[Tensor, " half"]

    def __init__(self, width: int, *, base: float = 10_000.0, scaling: dict[str, float | str] | None = None) -> None:
        super().__init__()
        # In float32 throughout: so are the angles that published models were trained with.
        frequency = 1 / base ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
        self.register_buffer("frequency", scaled_frequency(frequency, scaling or {}), persistent=False)

    def forward(self, length: int, start: Start = 0) -> Rotation:
        """The angles of positions `start`, `start + 1`, …"""
        steps = torch.arange(length, device=self.frequency.device)
        if isinstance(start, int):
            positions = steps + start
        else:
            positions = (start if start.dim() == 2 else start[:, None] + steps)[:, None]
        angles = positions[..., None] * self.frequency
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()


def scaled_frequency(frequency: Float[Tensor, " half"], scaling: dict[str, float | str]) -> Float[Tensor, " half"]:
    """Slower angles, so that a longer text stays within those that the model knows.

    `linear` (Chen et al., 2023) divides all frequencies by `factor`. `llama3` (LLaMA 3.1) divides those that turn less
    than `low_frequency_factor` times within `original_positions`, leaves those that turn more than
    `high_frequency_factor` times, and blends linearly in between.
    """
    match scaling.get("kind"):
        case "linear":
            return frequency / float(scaling["factor"])
        case "llama3":
            turns = float(scaling["original_positions"]) * frequency / (2 * math.pi)
            low, high = float(scaling["low_frequency_factor"]), float(scaling["high_frequency_factor"])
            kept = ((turns - low) / (high - low)).clamp(0, 1)
            return (1 - kept) * frequency / float(scaling["factor"]) + kept * frequency
        case _:
            return frequency


def rotate(x: Float[Tensor, "b h t d"], rotation: Rotation) -> Float[Tensor, "b h t d"]:
    """Turn each pair of features `(x_i, x_{i + d/2})` by its angle."""
    cosine, sine = rotation
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


def make_positions(config: ModelConfig) -> nn.Module:
    """The positions of the model's shape."""
    match config.positions:
        case "sinusoids":
            return PositionalEncoding(config.d_model, dropout=config.dropout)
        case "sinusoids_halves":
            return HalvedPositionalEncoding(config.d_model, dropout=config.dropout)
        case "learned":
            return LearnedPositions(config.max_positions or 0, config.d_model, dropout=config.dropout)
        case "rotary":
            width = config.d_model // config.n_heads
            return RotaryPositions(width, base=float(config.rotary_base), scaling=config.rotary_scaling)
        case _:
            assert_never(config.positions)
