"""Documents one behind another, cut into blocks of one length: batches without padding for language models.

A block is a window of an epoch's stream of documents. A document that doesn't fit is cut, and goes on at the beginning
of the next block as if it began there. Documents in one block don't see each other: `PackedBatch.mask` says so, and
positions begin anew with each. What is in the blocks of an epoch, and in which order, is a pure function of the
corpus, the seed and the epoch, as with pairs (`text/batches.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.control_tokens import PAD
from clearhead.text.batches import draw
from clearhead.text.document_corpus import DocumentCorpus

Numbers = NDArray[np.int64]


class Block(NamedTuple):
    """A window of the stream."""

    ids: Numbers
    """`(t,)`"""
    following: Numbers
    """`(t,)`: the id that follows in the same document, -1 behind its last."""
    documents: Numbers
    """`(t,)`: to which of the block's documents a token belongs, counted from 0."""
    positions: Numbers
    """`(t,)`: within the document, or what of it is in the block."""


class BlockPlan:
    """The blocks of an epoch, in the order in which they are learned from.

    Documents come in random order, and so do the blocks that they are cut into; the first is of a random length, so
    that even a single long document is cut elsewhere in each epoch.

    Args:
        corpus: the documents; each part's weight says how often an epoch takes them.
        block_length: tokens of a block; the first and the last of an epoch may have fewer.
        seed: together with
        epoch: decides what is drawn.
        shuffle: if not, every document comes once, in the order of the files, and so do the blocks.
    """

    def __init__(
        self, corpus: DocumentCorpus, *, block_length: int, seed: int, epoch: int, shuffle: bool = True
    ) -> None:
        random = np.random.default_rng([seed, epoch])
        self._corpus = corpus
        self._order = draw(corpus.parts, random) if shuffle else np.arange(len(corpus))
        self._ends = np.cumsum(corpus.lengths[self._order])
        total = int(self._ends[-1])
        first = int(random.integers(1, block_length + 1)) if shuffle else block_length
        cuts = np.arange(first, total, block_length)
        self._starts, self._stops = np.concatenate([[0], cuts]), np.concatenate([cuts, [total]])
        if shuffle:
            shuffled = random.permutation(len(self._starts))
            self._starts, self._stops = self._starts[shuffled], self._stops[shuffled]
        self.block_length = block_length

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def lengths(self) -> Numbers:
        """The tokens of each block."""
        return self._stops - self._starts

    def __getitem__(self, number: int) -> Block:
        if not 0 <= number < len(self):
            raise IndexError(f"block {number} of a plan of {len(self)}")
        start, stop = int(self._starts[number]), int(self._stops[number])
        places = np.arange(start, min(stop + 1, int(self._ends[-1])))
        documents = np.searchsorted(self._ends, places, side="right")
        lengths = self._corpus.lengths[self._order[documents]]
        begins = self._ends[documents] - lengths
        ids = self._corpus.ids[self._corpus.offsets[self._order[documents]] + places - begins].astype(np.int64)
        count = stop - start
        following = np.full(count, -1)
        same = documents[1:] == documents[:-1]
        following[: len(same)] = np.where(same, ids[1:], -1)
        positions = places - np.maximum(begins, start)
        return Block(ids[:count], following, (documents - documents[0])[:count], positions[:count])


@dataclass(frozen=True)
class PackedBatch:
    """The tensors of a training step: blocks side by side, the shorter ones padded on the right."""

    ids: Tensor
    """`(b, t)` int64: what the model reads."""
    labels: Tensor
    """`(n,)` int64: what it is to say …"""
    rows: Tensor
    """… at these places of `ids.flatten()`."""
    documents: Tensor
    """`(b, t)` int64: the document in its block that a token belongs to; padding is one, too."""
    positions: Tensor
    """`(b, t)` int64: the place of each token in its document."""
    one_document: bool
    """Each block is a single document, whole to its end: no mask is needed."""
    target_tokens: int
    """n."""

    def to(self, device: torch.device | str) -> PackedBatch:
        """The same batch on another device."""
        tensors = (self.ids, self.labels, self.rows, self.documents, self.positions)
        ids, labels, rows, documents, positions = (tensor.to(device, non_blocking=True) for tensor in tensors)
        return PackedBatch(ids, labels, rows, documents, positions, self.one_document, self.target_tokens)

    def describe(self) -> str:
        """Its size in words."""
        return f"{self.ids.size(0)} blocks of {self.ids.size(1)} tokens"


def pack(blocks: list[Block], read: list[Numbers], wanted: list[Numbers]) -> PackedBatch:
    """The batch of some blocks, what the model reads of each, and what it is to say at each place: -1 where nothing."""
    longest = max(len(block.ids) for block in blocks)

    def together(rows: list[Numbers], filling: int) -> Tensor:
        padded = np.full((len(rows), longest), filling, dtype=np.int64)
        for place, row in enumerate(rows):
            padded[place, : len(row)] = row
        return torch.from_numpy(padded)

    labels = together(wanted, -1).flatten()
    rows = (labels >= 0).nonzero().squeeze(1)
    return PackedBatch(
        ids=together(read, PAD),
        labels=labels[rows],
        rows=rows,
        documents=together([block.documents for block in blocks], -1),
        positions=together([block.positions for block in blocks], 0),
        one_document=all(len(block.ids) == longest and not block.documents.any() for block in blocks),
        target_tokens=len(rows),
    )
