"""What outputs are measured against: source lines, each with its acceptable references."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.errors import DataError
from clearhead.text.readers import CorpusFiles, is_blank, read_lines, read_pairs


@dataclass(frozen=True)
class ReferenceSet:
    """Sources and the texts accepted for each: `references[i]` for `sources[i]`, first in line `first_lines[i]`.

    Lines count from 0. There are fewer sources than lines where lines with the same source were merged, and
    where lines were blank.
    """

    name: str  # how messages call it
    sources: list[str]
    references: list[list[str]]
    first_lines: list[int]
    line_count: int

    def __len__(self) -> int:
        return len(self.sources)

    def align_outputs(self, outputs: Sequence[str], name: str) -> list[str]:
        """One output for every source, from a file with a line for every source or for every line read.

        Raises:
            DataError: another number of outputs; names both files and both counts.
        """
        if len(outputs) == self.line_count:
            return [outputs[line] for line in self.first_lines]
        if len(outputs) == len(self):
            return list(outputs)
        merged = f" ({len(self)} different sources)" if len(self) != self.line_count else ""
        raise DataError(
            f"{name} has {len(outputs)} lines but {self.name} has {self.line_count}{merged}; "
            "an output file needs one line for every source line, in the same order"
        )


def from_pairs(name: str, pairs: Iterable[tuple[str, Sequence[str]]], *, merge: bool) -> ReferenceSet:
    """Collects (source, references); with `merge`, a repeated source adds its references to its first
    appearance.

    Blank pairs, such as an empty line at a file's end, are no test of anything and left out.

    Raises:
        DataError: there is nothing in it.
    """
    sources: list[str] = []
    references: list[list[str]] = []
    first_lines: list[int] = []
    entry_of: dict[str, int] = {}
    line = -1
    for line, (source, acceptable) in enumerate(pairs):
        if is_blank(source) and all(is_blank(text) for text in acceptable):
            continue
        entry = entry_of.setdefault(source, len(sources)) if merge else len(sources)
        if entry == len(sources):
            sources.append(source)
            references.append([])
            first_lines.append(line)
        references[entry].extend(text for text in acceptable if text not in references[entry])
    if not sources:
        raise DataError(f"{name} is empty: there is nothing to evaluate")
    return ReferenceSet(name, sources, references, first_lines, line + 1)


def from_corpus_files(files: CorpusFiles) -> ReferenceSet:
    """A recipe's data. In a file of pairs lines with the same source are merged, in aligned files not."""
    pairs = ((pair.source, [pair.target]) for pair in read_pairs(files))
    return from_pairs(" and ".join(map(str, files.paths)), pairs, merge=files.pairs is not None)


def from_reference_columns(path: Path) -> ReferenceSet:
    """Lines of `source TAB reference [TAB reference ...]`; lines with the same source are merged.

    Raises:
        DataError: a line without a tab; names file and line.
    """

    def lines() -> Iterator[tuple[str, list[str]]]:
        for number, line in enumerate(read_lines(path), start=1):
            source, *acceptable = line.split("\t")
            if source and not acceptable:
                raise DataError(f"{path}, line {number}: no tab, so no reference beside {source[:60]!r}")
            yield source, [text for text in acceptable if text] or [""]

    return from_pairs(str(path), lines(), merge=True)


def from_aligned_files(source: Path | None, references: Sequence[Path]) -> ReferenceSet:
    """A file of sources and one or more files of references, line by line.

    Without sources there is nothing to translate, but outputs that exist can be measured.

    Raises:
        DataError: different numbers of lines; names every file and its count.
    """
    columns = [list(read_lines(path)) for path in references]
    sources = list(read_lines(source)) if source else [""] * len(columns[0])
    paths = [*([source] if source else []), *references]
    counts = [*([len(sources)] if source else []), *(len(column) for column in columns)]
    if len(set(counts)) > 1:
        found = ", ".join(f"{path} has {count} lines" for path, count in zip(paths, counts, strict=True))
        raise DataError(f"the files can't be put side by side: {found}")
    rows = zip(*columns, strict=True)
    return from_pairs(" and ".join(map(str, paths)), zip(sources, rows, strict=True), merge=False)
