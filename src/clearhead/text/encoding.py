"""Writes the files of a corpus cache (`clearhead.text.corpus` describes them), a few thousand pairs at a
time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from clearhead.text.filtering import FilterReport, PairFilter
from clearhead.text.readers import CorpusFiles, Pair, Selection, read_pairs
from clearhead.text.tokenizers import EOS, Tokenizer

PAIRS_AT_A_TIME = 4096
CHARACTERS_AT_A_TIME = 1 << 20
"""Bounds the memory of a chunk when lines are very long."""

OFFSET_TYPE = "<i8"


def id_type(vocab_size: int) -> str:
    """The smallest little-endian NumPy type that holds every id of a vocabulary."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def write_corpus(
    directory: Path,
    corpora: Sequence[CorpusFiles],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    max_length: int,
    select: Selection | None,
    on_progress: Callable[[int], None] | None,
) -> dict[str, Any]:
    """Encode corpora into the ids and offsets files of `directory`.

    Returns:
        What `corpus.json` says of them: parts, report, number of pairs, types and numbers of ids.
    """
    report = FilterReport()
    parts: list[dict[str, Any]] = []
    pairs_read = 0
    with (
        SideWriter(directory, "source", source_tokenizer) as sources,
        SideWriter(directory, "target", target_tokenizer) as targets,
    ):
        for files in corpora:
            start = report.kept
            pair_filter = PairFilter(report, files, max_length=max_length)
            selected = (pair for pair in read_pairs(files) if select is None or pair in select)
            for chunk in _chunks(selected):
                encoded = zip(
                    chunk,
                    source_tokenizer.encode_batch([pair.source for pair in chunk]),
                    target_tokenizer.encode_batch([pair.target for pair in chunk]),
                    strict=True,
                )
                kept = [(source, target) for pair, source, target in encoded if pair_filter.keeps(pair, source, target)]
                sources.append([source for source, _ in kept])
                targets.append([target for _, target in kept])
                pairs_read += len(chunk)
                if on_progress is not None:
                    on_progress(pairs_read)
            parts.append({"name": files.name, "start": start, "stop": report.kept, "weight": files.weight})
        return {
            "pairs": report.kept,
            "max_length": max_length,
            "parts": parts,
            "source": {"type": sources.type, "ids": sources.id_count},
            "target": {"type": targets.type, "ids": targets.id_count},
            "report": report.to_dict(),
        }


def _chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    chunk: list[Pair] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(chunk) == PAIRS_AT_A_TIME or characters >= CHARACTERS_AT_A_TIME:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


class SideWriter:
    """Appends texts' ids to `SIDE.ids`, each text with EOS, and where the next text begins to
    `SIDE.offsets`."""

    def __init__(self, directory: Path, side: str, tokenizer: Tokenizer) -> None:
        self.type = id_type(tokenizer.vocab_size)
        self.id_count = 0
        self._stack = ExitStack()
        self._ids: BinaryIO = self._stack.enter_context((directory / f"{side}.ids").open("wb"))
        self._offsets: BinaryIO = self._stack.enter_context((directory / f"{side}.offsets").open("wb"))
        self._offsets.write(np.zeros(1, OFFSET_TYPE).tobytes())

    def append(self, texts: Sequence[list[int]]) -> None:
        """Write the ids of several texts, as the tokenizer gives them."""
        lengths = np.array([len(ids) + 1 for ids in texts], OFFSET_TYPE)
        flat = chain.from_iterable(chain(ids, (EOS,)) for ids in texts)
        self._ids.write(np.fromiter(flat, self.type, count=int(lengths.sum())).tobytes())
        self._offsets.write((self.id_count + np.cumsum(lengths, dtype=OFFSET_TYPE)).tobytes())
        self.id_count += int(lengths.sum())

    def __enter__(self) -> "SideWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
