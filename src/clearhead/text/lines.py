"""Bytes of a file to lines of text: UTF-8 whatever the locale, and only `\\n` or `\\r\\n` ends a line.

Python's own text mode decodes with the locale's encoding and `str.splitlines` breaks at U+2028, U+0085, form
feeds and more; either shifts one file against its translation. So files are read as bytes, split at `\\n`,
and decoded here.
"""

import gzip
import io
import sys
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from clearhead.errors import DataError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")

# Letters and marks by their Unicode category, yet nothing is drawn: Hangul fillers, empty braille, grapheme
# joiner.
INVISIBLE_LETTERS = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0")


class Pair(NamedTuple):
    """A source text, its target text, and where it stood."""

    source: str
    target: str
    line: int
    """The line (of Parquet: the row) in its file, counted from 1."""


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file as bytes, unpacking it if its name ends in `.gz`.

    Raises:
        DataError: the file is absent, unreadable or broken; also while it is being read inside the `with`
            block.
    """
    if "\0" in str(path):
        raise DataError(f"{str(path)!r}: a file's name can't hold a NUL character")
    try:
        if path.name.lower().endswith(".gz"):
            with gzip.open(path, "rb") as unpacked:
                yield io.BufferedReader(unpacked)
        else:
            with path.open("rb") as stream:
                yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: broken gzip file ({error}); pack it again, or drop .gz from its name") from error
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except OSError as error:
        raise DataError(f"{path}: can't be read: {error.strerror or error}") from error


def read_lines(path: str | Path | Iterable[bytes]) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 file without their ends, in bounded memory.

    A line ends at `\n` or `\r\n` and nowhere else. A byte order mark at the start of the file is dropped.
    Carriage returns before the line's end are dropped with it (`\r\r\n` is what double conversion on Windows
    leaves); one inside a line becomes a space.

    Args:
        path: a file, plain or `.gz`; `"-"` for standard input; or a stream opened as bytes.

    Raises:
        DataError: no such file, broken gzip, or bytes that aren't UTF-8 (the message names file and line).
    """
    if isinstance(path, str | Path) and str(path) != "-":
        with open_bytes(Path(path)) as stream:
            yield from decode_lines(stream, str(path))
    elif isinstance(path, str | Path):
        yield from decode_lines(sys.stdin.buffer, "standard input")
    else:
        yield from decode_lines(path, str(getattr(path, "name", "input")))


def decode_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a stream of bytes, as `read_lines` yields them; `name` is for the error message."""
    for number, raw in enumerate(stream, start=1):
        if number == 1 and raw.startswith(BYTE_ORDER_MARK):
            raw = raw[len(BYTE_ORDER_MARK) :]
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(_not_utf_8(raw, error, name, number)) from error
        if "\r" in text:
            text = text.removesuffix("\n").rstrip("\r").replace("\r", " ")
        yield text.removesuffix("\n")


def _not_utf_8(raw: bytes, error: UnicodeDecodeError, name: str, line: int) -> str:
    is_utf_16 = line == 1 and raw.startswith(UTF_16_MARKS)
    encoding = "UTF-16" if is_utf_16 else "LATIN1"
    guess = "looks like UTF-16" if is_utf_16 else "is perhaps in another encoding"
    return (
        f"{name}, line {line}: byte 0x{raw[error.start]:02x} at position {error.start} is not UTF-8; "
        f"the file {guess}: convert it, for example with iconv -f {encoding} -t UTF-8"
    )


def count_lines(path: Path) -> int:
    """How many lines `read_lines` will yield, without decoding them."""
    with open_bytes(path) as stream:
        return sum(1 for _ in stream)


def fold_field_breaks(text: str) -> str:
    r"""Line ends inside a field of a structured format: `\r\n` becomes `\n`, a lone `\r` a space, as in
    `read_lines`."""
    return text.replace("\r\n", "\n").replace("\r", " ") if "\r" in text else text


def one_line(text: str) -> str:
    """The text as a line of output: line ends inside it become spaces, so that line i still belongs to line i."""
    return text.replace("\n", " ").replace("\r", " ")


def is_blank(text: str) -> bool:
    """Whether nothing of the text can be seen: only white space, no-break or zero-width spaces, control
    characters."""
    return all(_is_invisible(character) for character in text)


def _is_invisible(character: str) -> bool:
    # Zs Zl Zp: separators; Cc Cf: control and format characters, among them U+200B, U+FEFF and NUL.
    return (
        character.isspace()
        or unicodedata.category(character) in {"Zs", "Zl", "Zp", "Cc", "Cf"}
        or character in INVISIBLE_LETTERS
    )
