"""Writes the files of a corpus cache (`clearhead.text.corpus` describes them), a few thousand pairs at a
time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from clearhead.text.encoded_cache import SideWriter
from clearhead.text.filtering import FilterReport, PairFilter
from clearhead.text.readers import CorpusFiles, Pair, Selection, read_pairs
from clearhead.text.tokenizers import EOS, PairTokenizer

PAIRS_AT_A_TIME = 4096
CHARACTERS_AT_A_TIME = 1 << 20
"""Bounds the memory of a chunk when lines are very long."""


def write_corpus(
    directory: Path,
    corpora: Sequence[CorpusFiles],
    source_tokenizer: PairTokenizer,
    target_tokenizer: PairTokenizer,
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
        SideWriter(directory, "source", source_tokenizer.vocab_size) as sources,
        SideWriter(directory, "target", target_tokenizer.vocab_size) as targets,
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
                sources.append([source for source, _ in kept], end=(EOS,))
                targets.append([target for _, target in kept], end=(EOS,))
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
