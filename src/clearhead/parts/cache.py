"""What decoding keeps between steps, so that each new token costs one position's work and not the whole sentence's.

A cache is an argument, never a module's state. All hypotheses of a sentence share one past: a list of entries (the key
and the value of one token of one hypothesis), which only ever grows at its end. Which of them lie behind a hypothesis
is a mask. So when beams change places bits are moved, and not keys and values; and what beams have in common is stored
once.

Axes besides the usual: `b` sentence, `k` hypothesis of a sentence, `n` entry, `r` row, that is, an open hypothesis.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.parts.masks import causal_mask


class Rows:
    """Which hypotheses of a batch are open: only they take rows in the decoder's matrix products.

    Attention needs a sentence's hypotheses side by side, so there the rows are spread over the full grid `(b, k)`.
    """

    def __init__(self, is_open: Bool[Tensor, "b k"]) -> None:
        self.grid = is_open.shape
        self.places: Int[Tensor, " r"] | None = None
        """Where the rows lie in the flattened grid; `None` when they fill it."""
        if not bool(is_open.all()):
            self.places = is_open.flatten().nonzero().squeeze(1)

    def spread(self, rows: Tensor) -> Tensor:
        """`(r, …)` to `(b, k, …)`, with zeros where a hypothesis is closed."""
        if self.places is None:
            return rows.unflatten(0, self.grid)
        grid = rows.new_zeros(self.grid.numel(), *rows.shape[1:])
        return grid.index_copy_(0, self.places, rows).unflatten(0, self.grid)

    def gather(self, grid: Tensor) -> Tensor:
        """`(b, k, …)` to `(r, …)`."""
        rows = grid.flatten(0, 1)
        return rows if self.places is None else rows.index_select(0, self.places)


class KeyValueCache:
    """Keys and values of one self-attention: room for `capacity` entries a sentence, of which `length` are filled."""

    def __init__(self, key: Float[Tensor, "b h _ d"], capacity: int) -> None:
        sentences, heads, _, width = key.shape
        self.keys, self.values = (key.new_empty(sentences, heads, capacity, width) for _ in range(2))
        self.length = 0

    @property
    def capacity(self) -> int:
        """How many entries there is room for."""
        return self.keys.size(2)

    def append(
        self, key: Float[Tensor, "b h n d"], value: Float[Tensor, "b h n d"]
    ) -> tuple[Float[Tensor, "b h k d"], Float[Tensor, "b h k d"]]:
        """Write new entries in place; returns all so far."""
        keys, values = self.reserve(key.size(2))
        keys[:, :, -key.size(2) :] = key
        values[:, :, -key.size(2) :] = value
        return keys, values

    def reserve(self, entries: int) -> tuple[Float[Tensor, "b h k d"], Float[Tensor, "b h k d"]]:
        """All entries so far, and behind them new ones that the caller is to write."""
        self.length += entries
        if self.length > self.capacity:
            self._grow(max(self.length, 2 * self.capacity))
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def keep_sentences(self, sentences: Int[Tensor, " b2"]) -> None:
        """Only these sentences stay."""
        for name in ("keys", "values"):
            old: Tensor = getattr(self, name)
            new = old.new_empty(len(sentences), *old.shape[1:])
            new[:, :, : self.length] = old[:, :, : self.length].index_select(0, sentences)
            setattr(self, name, new)

    def keep_entries(self, entries: Int[Tensor, "b n"]) -> None:
        """Only these entries of each sentence stay, in this order."""
        for name in ("keys", "values"):
            old: Tensor = getattr(self, name)
            index = entries[:, None, :, None].expand(-1, old.size(1), -1, old.size(3))
            old[:, :, : entries.size(1)] = old.gather(2, index)
        self.length = entries.size(1)

    def _grow(self, capacity: int) -> None:
        for name in ("keys", "values"):
            old: Tensor = getattr(self, name)
            new = old.new_empty(*old.shape[:2], capacity, old.size(3))
            new[:, :, : old.size(2)] = old
            setattr(self, name, new)


@dataclass
class LayerCache:
    """What one decoder layer keeps: the entries of its self-attention, and the source's keys and values."""

    past: KeyValueCache
    memory_key: Float[Tensor, "b h s d"]
    memory_value: Float[Tensor, "b h s d"]


@dataclass
class DecoderCache:
    """The caches of all layers of a decoder, what each hypothesis has behind it, and where the source has tokens."""

    layers: list[LayerCache]
    memory_mask: Bool[Tensor, "b 1 1 s"] | None
    rows: Rows
    """The hypotheses that the next step decodes, a row each."""
    past: Bool[Tensor, "b k n"]
    """The entries that lie behind each hypothesis."""
    length: int = 0
    """Number of target positions decoded so far."""
    ragged: bool = False
    """Hypotheses side by side stand at different positions: some entries of a sentence lie behind none of its own."""

    def positions(self) -> int | Int[Tensor, " r"]:
        """Where each open hypothesis' next token will stand: it has as many entries behind it."""
        return self.rows.gather(self.past.sum(-1)) if self.ragged else self.length

    def advance(self, positions: int) -> Bool[Tensor, "b 1 q n"] | None:
        """Put the next positions of all hypotheses behind what is there; returns what they may attend to.

        Each hypothesis' new positions see its own past, and each other causally. `None`: all that there is.
        """
        if self.past.size(-1) + self.past.size(1) * positions > self.layers[0].past.capacity:
            self._forget()
        sentences, beams, before = self.past.shape
        self.length += positions
        own = torch.eye(beams, dtype=torch.bool, device=self.past.device)
        own = own[:, :, None].expand(-1, -1, positions).flatten(1).expand(sentences, -1, -1)
        self.past = torch.cat([self.past, own], -1)
        if beams == positions == 1 and not self.ragged:  # one hypothesis sees every entry of its sentence
            return None
        mask = self.past.repeat_interleave(positions, 1)
        if positions > 1:
            mask[:, :, before:] &= causal_mask(positions, positions, mask.device).repeat(beams, beams)
        return mask[:, None]

    def follow(self, origins: Int[Tensor, "b k"]) -> None:
        """Hypothesis `j` of a sentence goes on from where hypothesis `origins[j]` of it was."""
        self.past = self.past.gather(1, origins[:, :, None].expand(-1, -1, self.past.size(-1)))

    def keep_sentences(self, sentences: Int[Tensor, " b2"]) -> None:
        """Only these sentences stay."""
        self.past = self.past.index_select(0, sentences)
        for layer in self.layers:
            layer.past.keep_sentences(sentences)
            layer.memory_key = layer.memory_key.index_select(0, sentences)
            layer.memory_value = layer.memory_value.index_select(0, sentences)
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, sentences)

    def replace_sentences(self, places: Int[Tensor, " b2"], newcomers: DecoderCache) -> None:
        """Others, of which nothing is decoded yet, come in the place of these; none may have a longer source."""
        self.ragged = True
        self.past[places] = False
        for layer, new in zip(self.layers, newcomers.layers, strict=True):
            layer.memory_key[places, :, : new.memory_key.size(2)] = new.memory_key
            layer.memory_value[places, :, : new.memory_value.size(2)] = new.memory_value
        if self.memory_mask is not None and newcomers.memory_mask is not None:
            self.memory_mask[places] = False
            self.memory_mask[places, :, :, : newcomers.memory_mask.size(-1)] = newcomers.memory_mask

    def _forget(self) -> None:
        """Drop the entries that no hypothesis has behind it any more, the others staying in order."""
        needed = self.past.any(1)
        most = int(needed.sum(-1).max())
        if most > self.past.size(-1) // 2:  # not worth the copying: let the cache grow
            return
        entries = needed.to(torch.uint8).argsort(stable=True, dim=-1, descending=True)[:, :most]
        self.past = self.past.gather(2, entries[:, None].expand(-1, self.past.size(1), -1))
        for layer in self.layers:
            layer.past.keep_entries(entries)
