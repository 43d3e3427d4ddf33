"""Tab-separated and comma-separated files."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from clearhead.errors import ConfigError, DataError
from clearhead.text.lines import Pair, read_lines

Column = str | int

# The csv module refuses fields above 128 KiB, a limit of the whole process. A quote that is never closed
# takes in the rest of the file, so some limit must stand between a typing mistake and the memory of the
# machine.
LONGEST_FIELD = 16 * 2**20


def read_tsv(path: Path, source: Column, target: Column) -> Iterator[Pair]:
    """Pairs of a file with a tab between its columns; nothing is quoted or escaped, further columns are
    ignored.

    Columns are numbers from 0, or names that the first line gives. A blank line is an empty pair.
    """
    rows = ((number, line.split("\t") if line else []) for number, line in enumerate(read_lines(path), start=1))
    return _pairs_of_rows(path, rows, source, target, separator="tab")


def read_csv(path: Path, source: Column, target: Column) -> Iterator[Pair]:
    """Pairs of a file with commas between its columns, quoted with `"` as in RFC 4180; else as `read_tsv`."""
    return _pairs_of_rows(path, _csv_rows(path), source, target, separator="comma")


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    # strict: a stray quote is an error. Otherwise the module would guess, and join lines without a word.
    rows = csv.reader((line + "\n" for line in read_lines(path)), strict=True)
    first_line = 1  # of the row to come: a quoted field may hold line ends
    try:
        for row in rows:
            yield first_line, row
            first_line = rows.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}, line {first_line}: not valid CSV: {error}; "
            'a field that holds a comma or a quote is written "in ""quotes"""'
        ) from error


def _pairs_of_rows(
    path: Path, rows: Iterator[tuple[int, list[str]]], source: Column, target: Column, *, separator: str
) -> Iterator[Pair]:
    source_index, target_index = _column_numbers(path, rows, source, target)
    last_index = max(source_index, target_index)
    for line, row in rows:
        if not row:
            yield Pair("", "", line)
        elif len(row) <= last_index:
            raise DataError(
                f"{path}, line {line}: {_columns(len(row))} where column {last_index + 1} is needed; "
                f"columns are separated by a {separator}: {_shortened(row)}"
            )
        else:
            yield Pair(row[source_index], row[target_index], line)


def _column_numbers(
    path: Path, rows: Iterable[tuple[int, list[str]]], source: Column, target: Column
) -> tuple[int, int]:
    """The numbers of both columns; if they are given by name, the first row is taken off `rows` as the
    header."""
    if isinstance(source, int) and isinstance(target, int):
        if source < 0 or target < 0:
            raise ConfigError(f"{path}: columns are counted from 0, not {min(source, target)}")
        return source, target
    if isinstance(source, int) or isinstance(target, int):
        raise ConfigError(f"{path}: name both columns or number both, not {source!r} and {target!r}")
    _, header = next(iter(rows), (1, []))
    for name in (source, target):
        if name not in header:
            raise DataError(f"{path}, line 1: no column is named {name!r}; the first line has {header!r}")
    return header.index(source), header.index(target)


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _shortened(row: list[str], length: int = 60) -> str:
    text = repr("".join(row)[: length + 1])
    return text if len(text) <= length else text[:length] + "…"
