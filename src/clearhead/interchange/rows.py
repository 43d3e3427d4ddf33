"""Rows of a table of weight names, each of which can be read from left to right and from right to left.

`theirs` is a name in somebody's file, `ours` a parameter of our model. No row computes anything: it renames,
transposes, splits or reorders, so that going there and back gives the same bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from clearhead.errors import RunError

Tensors = dict[str, Tensor]


class Row(Protocol):
    """One tensor of theirs, and what it is of ours."""

    @property
    def theirs(self) -> str:
        """Its name there."""

    def read(self, tensor: Tensor) -> Tensors:
        """Our parameters."""

    def write(self, ours: Tensors) -> Tensor:
        """The inverse of `read`."""


@dataclass(frozen=True)
class Same:
    """Another name, or the other way round too: a matrix that is stored as `(in, out)` there."""

    theirs: str
    ours: str
    transposed: bool = False

    def read(self, tensor: Tensor) -> Tensors:
        """Our parameter."""
        return {self.ours: tensor.T.contiguous() if self.transposed else tensor}

    def write(self, ours: Tensors) -> Tensor:
        """The inverse of `read`."""
        tensor = ours[self.ours]
        return tensor.T.contiguous() if self.transposed else tensor


@dataclass(frozen=True)
class Split:
    """Several matrices (or biases) of ours, one behind the other in one of theirs: queries, keys and values."""

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False

    def read(self, tensor: Tensor) -> Tensors:
        """Our parameters."""
        parts = (tensor.T if self.transposed else tensor).chunk(len(self.ours))
        return {name: part.contiguous() for name, part in zip(self.ours, parts, strict=True)}

    def write(self, ours: Tensors) -> Tensor:
        """The inverse of `read`."""
        tensor = torch.cat([ours[name] for name in self.ours])
        return tensor.T.contiguous() if self.transposed else tensor


@dataclass(frozen=True)
class Turned:
    """A matrix of queries or keys whose rotary pairs are neighbours there: `(2i, 2i + 1)`, and ours `(i, i + d/2)`."""

    theirs: str
    ours: str
    heads: int

    def read(self, tensor: Tensor) -> Tensors:
        """Our parameter."""
        pairs = tensor.unflatten(0, (self.heads, -1, 2))
        return {self.ours: pairs.transpose(1, 2).flatten(0, 2).contiguous()}

    def write(self, ours: Tensors) -> Tensor:
        """The inverse of `read`."""
        return ours[self.ours].unflatten(0, (self.heads, 2, -1)).transpose(1, 2).flatten(0, 2).contiguous()


@dataclass(frozen=True)
class Dropped:
    """Names of theirs (a regular expression) that hold nothing a model learns: masks and tables that we compute."""

    pattern: str


@dataclass(frozen=True)
class Copy:
    """A name of theirs under which another one's tensor may be stored again, because the two are tied."""

    theirs: str
    of: str


@dataclass(frozen=True)
class Table:
    """All rows of a model."""

    rows: Sequence[Row]
    others: Sequence[Dropped | Copy] = ()

    def read(self, theirs: Mapping[str, Tensor], *, origin: str) -> Tensors:
        """Our parameters, from all of their tensors. Raises `RunError` when one is missing or unknown."""
        missing = [row.theirs for row in self.rows if row.theirs not in theirs]
        known = {row.theirs for row in self.rows}
        unknown = [name for name in theirs if name not in known and not self._is_spare(name, theirs, origin)]
        if missing or unknown:
            raise RunError(
                f"{origin}: the weights don't fit the configuration: {missing[:5] or 'none'} missing "
                f"({len(missing)}), {unknown[:5] or 'none'} not known ({len(unknown)})"
            )
        ours: Tensors = {}
        for row in self.rows:
            ours.update(row.read(theirs[row.theirs]))
        return ours

    def write(self, ours: Tensors) -> Tensors:
        """The inverse of `read`: their tensors, what is tied stored once."""
        return {row.theirs: row.write(ours) for row in self.rows}

    def _is_spare(self, name: str, theirs: Mapping[str, Tensor], origin: str) -> bool:
        """Whether a tensor of theirs may be left out. Raises `RunError` where what should be tied isn't."""
        for other in self.others:
            if isinstance(other, Dropped) and re.fullmatch(other.pattern, name):
                return True
            if isinstance(other, Copy) and name == other.theirs:
                if not torch.equal(theirs[name], theirs[other.of]):
                    raise RunError(f"{origin}: {name} should be the same matrix as {other.of}, but it differs")
                return True
        return False


def linear(theirs: str, ours: str, *, transposed: bool = False, bias: bool = True) -> list[Row]:
    """The matrix and the bias of a linear map."""
    rows: list[Row] = [Same(f"{theirs}.weight", f"{ours}.weight", transposed)]
    return [*rows, Same(f"{theirs}.bias", f"{ours}.bias")] if bias else rows


def norm(theirs: str, ours: str) -> list[Row]:
    """The gain and the bias of a layer normalisation."""
    return [Same(f"{theirs}.weight", f"{ours}.gamma"), Same(f"{theirs}.bias", f"{ours}.beta")]


def flat(rows: Iterable[Iterable[Row]]) -> list[Row]:
    """One list of many."""
    return [row for group in rows for row in group]
