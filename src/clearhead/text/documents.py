"""Documents from text files, for language models: whole files, lines, paragraphs, or rows of a table.

A document ends where the next one's words have nothing to do with its own: a model is never shown the one in front of
the other. Everything streams; of a file that is one document, parts of a million characters are documents each, cut at
line ends, so that a file may be larger than memory.
"""

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from clearhead.errors import ConfigError
from clearhead.text.formats.json_lines import read_json_lines
from clearhead.text.formats.parquet import read_parquet
from clearhead.text.lines import is_blank, read_lines

DocumentKind = Literal["files", "lines", "blank_lines"]
LONGEST = 1 << 20
"""Characters of a document; what is longer is cut at the next line's end."""


class Document(NamedTuple):
    """A text, and where it begins."""

    text: str
    file: str
    line: int


@dataclass(frozen=True)
class TextFiles:
    """Some files, and what a document is in them."""

    paths: tuple[Path, ...]
    documents: DocumentKind = "files"
    column: str = "text"
    """Where the text is in .jsonl and .parquet."""
    weight: float = 1.0
    """How often an epoch takes each document."""

    @property
    def name(self) -> str:
        """The first file's name, and how many more there are."""
        more = len(self.paths) - 1
        return self.paths[0].name + (f" and {more:,} more" if more else "")


def find_files(root: Path, pattern: str) -> tuple[Path, ...]:
    """The file of that name in a folder; or else those that fit a pattern, in the order of their names.

    Raises:
        ConfigError: there is none.
    """
    if (root / pattern).is_file():
        return (root / pattern,)
    found = tuple(
        path for name in sorted(glob.glob(str(root / pattern), recursive=True)) if (path := Path(name)).is_file()
    )
    if not found:
        raise ConfigError(
            f"{pattern}: no such file in {root.absolute()}, nor one that fits; set its folder with data.root"
        )
    return found


def read_documents(corpora: Iterable[TextFiles]) -> Iterator[Document]:
    """Every document, blank ones too, in the order of the files.

    Raises:
        DataError: a file is absent or broken, or no UTF-8.
    """
    for files in corpora:
        for path in files.paths:
            for text, line in _read_file(path, files):
                yield Document(text, path.name, line)


def usable_documents(corpora: Iterable[TextFiles]) -> Iterator[Document]:
    """Those that have something to read."""
    return (document for document in read_documents(corpora) if not is_blank(document.text))


def _read_file(path: Path, files: TextFiles) -> Iterator[tuple[str, int]]:
    """The documents of one file, and the lines at which they begin."""
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix in (".jsonl", ".ndjson"):
        return ((row.source, row.line) for row in read_json_lines(path, files.column, files.column))
    if suffix == ".parquet":
        return ((row.source, row.line) for row in read_parquet(path, files.column, files.column))
    lines = enumerate(read_lines(path), start=1)
    match files.documents:
        case "lines":
            return ((text, number) for number, text in lines)
        case "blank_lines":
            return _paragraphs(lines)
        case "files":
            return _parts(lines)


def _paragraphs(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[str, int]]:
    """What blank lines set apart."""
    held: list[str] = []
    first = 1
    for number, text in lines:
        if not is_blank(text):
            first = first if held else number
            held.append(text)
        elif held:
            yield "\n".join(held), first
            held = []
    if held:
        yield "\n".join(held), first


def _parts(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[str, int]]:
    """All lines as one document; as several if they are very many."""
    held: list[str] = []
    first, characters = 1, 0
    for number, text in lines:
        first = first if held else number
        held.append(text)
        characters += len(text) + 1
        if characters >= LONGEST:
            yield "\n".join(held), first
            held, characters = [], 0
    if held:
        yield "\n".join(held), first


def names_of(corpora: Sequence[TextFiles]) -> str:
    """The files in words."""
    return ", ".join(files.name for files in corpora)
