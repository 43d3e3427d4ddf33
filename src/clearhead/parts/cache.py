"""What decoding keeps between steps, so that each new token costs one position's work and not the whole sentence's.

A cache is an argument, never a module's state. Its rows are hypotheses: `k` beams of sentence 0, then `k` of
sentence 1, and so on. Keys and values of the source are kept once a sentence, for all its beams.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor


class KeyValueCache:
    """Keys and values of one self-attention: room for `capacity` positions, of which `length` are filled."""

    def __init__(self, key: Float[Tensor, "r h _ d"], capacity: int) -> None:
        rows, heads, _, width = key.shape
        self.keys = key.new_empty(rows, heads, capacity, width)
        self.values = key.new_empty(rows, heads, capacity, width)
        self.length = 0

    def append(
        self, key: Float[Tensor, "r h q d"], value: Float[Tensor, "r h q d"]
    ) -> tuple[Float[Tensor, "r h k d"], Float[Tensor, "r h k d"]]:
        """Write `q` new positions in place; returns all `k` so far."""
        start, self.length = self.length, self.length + key.size(2)
        if self.length > self.keys.size(2):
            self._grow(max(self.length, 2 * self.keys.size(2)))
        self.keys[:, :, start : self.length] = key
        self.values[:, :, start : self.length] = value
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def select(self, rows: Int[Tensor, " n"]) -> None:
        """Row `i` becomes what row `rows[i]` was: beams reordered, finished rows left out, prompts repeated."""
        self.keys = self._selected(self.keys, rows)
        self.values = self._selected(self.values, rows)

    def _selected(self, stored: Tensor, rows: Tensor) -> Tensor:
        """Only the filled positions are copied."""
        chosen = stored.new_empty(len(rows), *stored.shape[1:])
        chosen[:, :, : self.length] = stored[:, :, : self.length].index_select(0, rows)
        return chosen

    def _grow(self, capacity: int) -> None:
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_empty(*old.shape[:2], capacity, old.size(3))
            new[:, :, : old.size(2)] = old
            setattr(self, name, new)


@dataclass
class LayerCache:
    """What one decoder layer keeps: its own past, and the source's keys and values."""

    past: KeyValueCache
    memory_key: Float[Tensor, "b h s d"]
    memory_value: Float[Tensor, "b h s d"]


@dataclass
class DecoderCache:
    """The caches of all layers of a decoder, and where the source has real tokens."""

    layers: list[LayerCache]
    memory_mask: Bool[Tensor, "b 1 1 s"] | None

    @property
    def length(self) -> int:
        """Number of target positions decoded so far."""
        return self.layers[0].past.length

    def select(self, rows: Int[Tensor, " n"], sentences: Int[Tensor, " l"] | None = None) -> None:
        """Hypothesis `i` becomes what hypothesis `rows[i]` was; with `sentences`, only these sentences stay.

        A hypothesis stays with its sentence: `rows` holds the same number of hypotheses for each sentence, in order.
        """
        for layer in self.layers:
            layer.past.select(rows)
            if sentences is not None:
                layer.memory_key = layer.memory_key.index_select(0, sentences)
                layer.memory_value = layer.memory_value.index_select(0, sentences)
        if sentences is not None and self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, sentences)
