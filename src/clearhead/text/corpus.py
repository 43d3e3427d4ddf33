"""Encoded pairs in a memory-mapped cache, so that a corpus may be larger than memory.

The cache is a folder of five files, written once and then only mapped:

    corpus.json       what was encoded, how, and what was left out
    source.ids        the token ids of all sources one after another, each ending in EOS
    target.ids        (uint16, or uint32 if the vocabulary needs it; little-endian), and of all targets
    source.offsets    where each source begins, n + 1 numbers (int64):
    target.offsets    source i is source.ids[offsets[i]:offsets[i + 1]]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError
from clearhead.text.encoded_cache import Ids, broken, build, description, file_states, map_side
from clearhead.text.encoding import write_corpus
from clearhead.text.filtering import FilterReport
from clearhead.text.readers import CorpusFiles, Selection
from clearhead.text.tokenizers import UNK, PairTokenizer

CACHE_VERSION = 1
IDS_AT_A_TIME = 1 << 22


@dataclass(frozen=True)
class CorpusPart:
    """The pairs from `start` up to `stop` of a corpus: one entry of a recipe."""

    name: str
    start: int
    stop: int
    weight: float


class Corpus:
    """Pairs of token ids on the disk. Made by `Corpus.build` or `Corpus.open`.

    Attributes:
        directory: the cache's folder.
        max_length: the limit its texts were held to, in tokens with EOS.
        parts: which pairs came from which files, and their weights.
        report: what was kept and what was left out.
        source_ids: all sources' ids one after another, each with EOS.
        source_offsets: where each source begins in them: `(n + 1,)`.
        target_ids: as `source_ids`.
        target_offsets: as `source_offsets`.
    """

    def __init__(self, directory: Path, description: dict[str, Any]) -> None:
        self.directory = directory
        self.max_length = int(description["max_length"])
        self.parts = tuple(CorpusPart(**part) for part in description["parts"])
        self.report = FilterReport.from_dict(description["report"])
        self.source_ids, self.source_offsets = map_side(directory, "source", description)
        self.target_ids, self.target_offsets = map_side(directory, "target", description)

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    @cached_property
    def source_lengths(self) -> NDArray[np.int32]:
        """The length of each source in tokens with EOS: `(n,)`."""
        return np.diff(self.source_offsets).astype(np.int32)

    @cached_property
    def target_lengths(self) -> NDArray[np.int32]:
        """The length of each target in tokens with EOS: `(n,)`."""
        return np.diff(self.target_offsets).astype(np.int32)

    def pair(self, index: int) -> tuple[Ids, Ids]:
        """The source and target ids of one pair as the tokenizers gave them, without EOS."""
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of a corpus of {len(self)}")
        source = self.source_ids[self.source_offsets[index] : self.source_offsets[index + 1] - 1]
        target = self.target_ids[self.target_offsets[index] : self.target_offsets[index + 1] - 1]
        return source, target

    @classmethod
    def build(
        cls,
        directory: Path,
        corpora: Sequence[CorpusFiles],
        source_tokenizer: PairTokenizer,
        target_tokenizer: PairTokenizer,
        *,
        max_length: int,
        select: Selection | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> "Corpus":
        """Encode corpora into `directory`, or open what lies there if it was made of the same files in the
        same way.

        Streams: memory stays flat. The folder appears complete or not at all; several processes may build it
            at once.

        Args:
            directory: the cache's folder. An older cache there is replaced, anything else is left alone.
            corpora: what to encode, one after another.
            source_tokenizer: for the sources.
            target_tokenizer: for the targets.
            max_length: longer texts are left out and reported; counts tokens with EOS.
            select: only these pairs: one side of `hold_out`.
            on_progress: called now and then with the number of pairs read so far.

        Raises:
            DataError: a file can't be read, or no pair is left (the message has the report).
            RunError: `directory` holds something else, or can't be written.
        """
        recipe = {
            "version": CACHE_VERSION,
            "files": [_identity(files) for files in corpora],
            "tokenizers": [source_tokenizer.fingerprint(), target_tokenizer.fingerprint()],
            "max_length": max_length,
            "select": None if select is None else [select.seed, select.threshold, select.held_out],
        }

        def write(temporary: Path) -> dict[str, Any]:
            contents = write_corpus(
                temporary,
                corpora,
                source_tokenizer,
                target_tokenizer,
                max_length=max_length,
                select=select,
                on_progress=on_progress,
            )
            if contents["pairs"] == 0:
                names = ", ".join(files.name for files in corpora)
                report = FilterReport.from_dict(contents["report"])
                raise DataError(f"no pair to use in {names}: {report.summary()}")
            return contents

        build(directory, recipe, write)
        return cls.open(directory)

    @classmethod
    def open(cls, directory: Path) -> "Corpus":
        """Map an existing cache.

        Raises:
            RunError: there is none, or it is broken.
        """
        try:
            return cls(directory, description(directory))
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise broken(directory, error) from error


@dataclass(frozen=True)
class UnknownCount:
    """How many tokens of a corpus are UNK, of how many; EOS is not counted."""

    source: int
    source_total: int
    target: int
    target_total: int

    def summary(self) -> str:
        """One line such as `unknown symbols: source 12 of 3,456 (0.35 %), target none`."""

        def side(name: str, unknown: int, total: int) -> str:
            return f"{name} {unknown:,} of {total:,} ({unknown / total:.2%})" if unknown else f"{name} none"

        source = side("source", self.source, self.source_total)
        return f"unknown symbols: {source}, {side('target', self.target, self.target_total)}"


def count_unknown(corpus: Corpus) -> UnknownCount:
    """Count what the tokenizers didn't know, a few megabytes at a time."""

    def unknown(ids: Ids) -> int:
        starts = range(0, len(ids), IDS_AT_A_TIME)
        return sum(int(np.count_nonzero(ids[start : start + IDS_AT_A_TIME] == UNK)) for start in starts)

    return UnknownCount(
        unknown(corpus.source_ids),
        len(corpus.source_ids) - len(corpus),
        unknown(corpus.target_ids),
        len(corpus.target_ids) - len(corpus),
    )


def _identity(files: CorpusFiles) -> list[Any]:
    """What tells a changed corpus: its files, and how they are read."""
    states = file_states(files.paths, files.name)
    return [states, files.format, files.source_column, files.target_column, files.weight]
