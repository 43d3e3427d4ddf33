"""Pairs of texts from the files in which people have them.

Two aligned text files, or one file of pairs: `.tsv`, `.csv`, `.jsonl`, `.parquet`, `.tmx`, `.po`, each plain
or `.gz`. Every reader streams: a file may be larger than memory. What is wrong with a file is a `DataError`
that names file and line.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal, assert_never, get_args

import numpy as np

from clearhead.errors import ConfigError, DataError
from clearhead.text.formats.gettext import read_gettext
from clearhead.text.formats.json_lines import read_json_lines
from clearhead.text.formats.parquet import read_parquet
from clearhead.text.formats.tables import Column, read_csv, read_tsv
from clearhead.text.formats.tmx import read_tmx
from clearhead.text.lines import Pair, count_lines, is_blank, read_lines

__all__ = [
    "CorpusFiles",
    "Pair",
    "PairFormat",
    "Selection",
    "hold_out",
    "is_blank",
    "read_lines",
    "read_pairs",
]

PairFormat = Literal["tsv", "csv", "jsonl", "parquet", "tmx", "po"]

FORMAT_OF_SUFFIX: dict[str, PairFormat] = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".tmx": "tmx",
    ".po": "po",
}


@dataclass(frozen=True)
class CorpusFiles:
    """One corpus: either two aligned files, or one file of pairs.

    Raises:
        ConfigError: neither or both of them given, or values that can't be right.
    """

    source: Path | None = None
    """A text file with one source a line …"""
    target: Path | None = None
    """… and the file with its targets, line for line."""
    pairs: Path | None = None
    """Or a file that holds both."""
    format: PairFormat | None = None
    """What `pairs` is; by default as its suffix says."""
    source_column: Column | None = None
    """Where in `pairs` the source is. By default: tsv and csv 0 (a name if the first line is a header), jsonl
    and parquet `source` (dots lead inwards: `translation.en`), po `msgid`; tmx has no default but needs a
    language."""
    target_column: Column | None = None
    """Where the target is. By default 1, `target`, `msgstr`."""
    weight: float = 1.0
    """How often an epoch takes each pair: 2 is twice, 0.5 a random half of the pairs."""

    def __post_init__(self) -> None:
        for name in ("source", "target", "pairs"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, Path(value))
        aligned = self.source is not None and self.target is not None
        if aligned == (self.pairs is not None) or (self.pairs and (self.source or self.target)):
            given = {name: str(getattr(self, name)) for name in ("source", "target", "pairs") if getattr(self, name)}
            raise ConfigError(f"a corpus is source and target, or pairs, but not {given or 'nothing'}")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ConfigError(f"{self.name}: weight={self.weight!r} must be a number above 0")
        if self.format is not None and self.format not in get_args(PairFormat):
            raise ConfigError(f"{self.name}: format={self.format!r} must be one of {', '.join(get_args(PairFormat))}")
        if self.pairs is None and (self.format or self.source_column is not None or self.target_column is not None):
            raise ConfigError(f"{self.name}: format, source_column and target_column go with pairs, not with two files")

    @property
    def name(self) -> str:
        """The file's name, or both names, without folders."""
        return self.pairs.name if self.pairs else " and ".join(p.name for p in (self.source, self.target) if p)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, source before target."""
        return tuple(path for path in (self.pairs, self.source, self.target) if path is not None)

    @property
    def source_file(self) -> Path:
        """The file that the sources stand in."""
        return self.paths[0]

    @property
    def target_file(self) -> Path:
        """The file that the targets stand in."""
        return self.paths[-1]


def read_pairs(files: CorpusFiles) -> Iterator[Pair]:
    """Yield the pairs of a corpus in their order, blank ones too, in bounded memory.

    Raises:
        DataError: a file is absent or broken; two files differ in their number of lines (before the first
            pair is given).
        ConfigError: the format isn't known, or its columns can't be.
    """
    if files.pairs is None:
        return _read_aligned(files.source_file, files.target_file)
    path, source, target = files.pairs, files.source_column, files.target_column
    format = files.format or _format_by_suffix(path)
    match format:
        case "tsv":
            return read_tsv(path, 0 if source is None else source, 1 if target is None else target)
        case "csv":
            return read_csv(path, 0 if source is None else source, 1 if target is None else target)
        case "jsonl":
            return read_json_lines(path, _key(files, source, "source"), _key(files, target, "target"))
        case "parquet":
            return read_parquet(path, _key(files, source, "source"), _key(files, target, "target"))
        case "tmx":
            return read_tmx(path, _language(files, source), _language(files, target))
        case "po":
            return read_gettext(path, _key(files, source, "msgid"), _key(files, target, "msgstr"))
        case _:
            assert_never(format)


def _read_aligned(source: Path, target: Path) -> Iterator[Pair]:
    # Counted first: a surplus line means that some pairs before it are shifted, and nobody can say which.
    source_count, target_count = count_lines(source), count_lines(target)
    if source_count != target_count:
        raise DataError(
            f"{source} has {source_count:,} lines but {target} has {target_count:,}: "
            "line for line they must belong together, so give them the same number of lines"
        )
    texts = zip(read_lines(source), read_lines(target), strict=True)
    for line, (source_text, target_text) in enumerate(texts, start=1):
        yield Pair(source_text, target_text, line)


def _format_by_suffix(path: Path) -> PairFormat:
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix not in FORMAT_OF_SUFFIX:
        formats = ", ".join(get_args(PairFormat))
        raise ConfigError(
            f'{path}: no format is known for "{suffix}"; say which it is with format="tsv" (of {formats})'
        )
    return FORMAT_OF_SUFFIX[suffix]


def _key(files: CorpusFiles, column: Column | None, default: str) -> str:
    if isinstance(column, int):
        raise ConfigError(f"{files.name}: its columns have names, so {column} can't be one; name it, as {default!r}")
    return default if column is None else column


def _language(files: CorpusFiles, column: Column | None) -> str | None:
    return None if column is None else _key(files, column, "en")


@dataclass(frozen=True)
class Selection:
    """One side of `hold_out`: `pair in selection` is a pure function of the source text, so doubles stay
    together."""

    seed: int
    threshold: int
    held_out: bool

    def __contains__(self, pair: Pair) -> bool:
        return self.chooses(pair.source)

    def chooses(self, text: str) -> bool:
        """Whether a text is on this side."""
        return (_hash(text, self.seed) <= self.threshold) == self.held_out


def hold_out(
    corpora: Sequence[CorpusFiles], *, seed: int, pairs: int | None = None, share: float | None = None
) -> tuple[Selection, Selection]:
    """Choose pairs at random for validation, without keeping the corpus in memory.

    A few more than asked for are chosen if the last one's source occurs several times. Blank pairs don't
    count.

    Args:
        corpora: what to choose from.
        seed: another seed chooses other pairs.
        pairs: how many; or
        share: which part of all pairs, between 0 and 1.

    Returns:
        The pairs to train on and those to validate with.

    Raises:
        ConfigError: not exactly one of `pairs` and `share`, or nothing would be left to one side.
    """
    if (pairs is None) == (share is None):
        raise ConfigError(f"hold out either a number of pairs or a share of them, not pairs={pairs} and share={share}")
    sources = (
        pair.source
        for files in corpora
        for pair in read_pairs(files)
        if not (is_blank(pair.source) or is_blank(pair.target))
    )
    names = ", ".join(files.name for files in corpora)
    return hold_out_texts(sources, seed=seed, count=pairs, share=share, names=names, noun="pairs")


def hold_out_texts(
    texts: Iterable[str], *, seed: int, count: int | None, share: float | None, names: str, noun: str
) -> tuple[Selection, Selection]:
    """The same of texts, of which there are several of some; `names` and `noun` say what they are. Raises
    `ConfigError`."""
    hashes = np.sort(np.fromiter((_hash(text, seed) for text in texts), dtype=np.uint64))
    asked = f"{count:,} {noun}" if count is not None else f"a share of {share}"
    count = max(1, round(len(hashes) * share)) if share is not None and share > 0 else count or 0
    if not 0 < count < len(hashes) or hashes[count - 1] == hashes[-1]:
        raise ConfigError(
            f"can't hold out {asked} for validation: {names} has {len(hashes):,} {noun}, both sides need some"
        )
    threshold = int(hashes[count - 1])
    return Selection(seed, threshold, held_out=False), Selection(seed, threshold, held_out=True)


def _hash(text: str, seed: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8, key=str(seed).encode()).digest(), "big")
