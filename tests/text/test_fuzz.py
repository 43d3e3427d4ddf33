"""Whatever a file holds, the readers give pairs or an error of ours, and nothing else."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import pyarrow
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from clearhead.errors import ClearheadError
from clearhead.text.readers import CorpusFiles, Pair, PairFormat, read_pairs

COLUMNS: dict[PairFormat, tuple[str, str]] = {"tmx": ("en", "de")}

# Pieces that mean something to one of the formats, to get past their first lines of defence.
PIECES = [
    *(
        b"\n",
        b"\r\n",
        b"\r",
        b"\0",
        b"\t",
        b",",
        b'"',
        b'""',
        b"\\",
        b"{",
        b"}",
        b"[",
        b":",
        b"null",
        b"1e999",
        b"\xef\xbb\xbf",
    ),
    *(b'{"source": "a", "target": "b"}', b'{"source": ', b'"target": "\\ud800"', b'"\\u0000"', b"NaN", b"-"),
    *(
        b"msgid ",
        b'msgid "a"\n',
        b'msgstr "b"\n',
        b'msgstr[0] "x"',
        b'msgid_plural "p"\n',
        b"msgctxt ",
        b"#, fuzzy\n",
        b"#~ ",
    ),
    *(
        b"<tmx>",
        b"</tmx>",
        b"<tu>",
        b"</tu>",
        b'<tuv xml:lang="en">',
        b'<tuv lang="de">',
        b"</tuv>",
        b"<seg>",
        b"</seg>",
    ),
    *(
        b"<ph>",
        b"</ph>",
        b"<![CDATA[",
        b"]]>",
        b"&amp;",
        b"&x;",
        b"&#0;",
        b"<!DOCTYPE a [",
        b'<!ENTITY x "y">',
        b"<?xml ",
    ),
    *(
        b"<?xml version='1.0' encoding='utf-7'?>",
        b"<?xml version='1.0' encoding='idna'?>",
        b"PAR1",
        b"\xff\xfe",
        b"\xc3",
    ),
    *("\u2028é中".encode(), b"\xed\xa0\x80", b"\\303", b"\\x", b"\\400", b"a" * 300),
]
contents = st.one_of(st.binary(max_size=300), st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join))


@contextmanager
def file_of(content: bytes, name: str) -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        yield path


def outcome(files: CorpusFiles) -> tuple[list[Pair] | None, str]:
    """The pairs, or the error's message."""
    try:
        return list(read_pairs(files)), ""
    except ClearheadError as error:
        return None, str(error)


def read_all(format: PairFormat, content: bytes, suffix: str = "") -> int:
    """The number of pairs, or -1 if they were refused in the right way."""
    source, target = COLUMNS.get(format, (None, None))
    with file_of(content, f"a.{format}{suffix}") as path:
        files = CorpusFiles(pairs=path, source_column=source, target_column=target)
        pairs, error = outcome(files)
    if pairs is None:
        assert path.name in error
        return -1
    for pair in pairs:
        assert "\r" not in pair.source + pair.target
        (pair.source + pair.target).encode()  # no surrogates
    return len(pairs)


def _parquet() -> bytes:
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({"source": ["a", "b"] * 50, "target": ["c", None] * 50}), sink)
    return bytes(sink.getvalue())


WHOLE: dict[PairFormat, bytes] = {
    "tsv": b"a\tb\n" * 9,
    "csv": b'a,"b\n"\n' * 9,
    "jsonl": b'{"source": "a", "target": "b"}\n' * 9,
    "parquet": _parquet(),
    "tmx": b"<tmx>"
    + b'<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="de"><seg>b</seg></tuv></tu>\n' * 9
    + b"</tmx>",
    "po": b'msgid "a"\nmsgstr "b"\n\n' * 9,
}


@pytest.mark.parametrize("format", get_args(PairFormat))
@given(content=contents)
@example(content=b"")
@example(content=b"\0")
@settings(max_examples=150, deadline=None)
def test_any_bytes(format: PairFormat, content: bytes) -> None:
    read_all(format, content)


@pytest.mark.parametrize("format", get_args(PairFormat))
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_damaged_files(format: PairFormat, data: st.DataObject) -> None:
    whole = WHOLE[format]
    assert read_all(format, whole) > 0
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, min(len(whole), start + 20)))
    read_all(format, whole[:start] + data.draw(contents) + whole[stop:])


@pytest.mark.parametrize("format", get_args(PairFormat))
@given(content=contents, cut=st.integers(0, 40), flip=st.integers(0, 400), bits=st.integers(0, 255))
@settings(max_examples=60, deadline=None)
def test_damaged_gzip(format: PairFormat, content: bytes, cut: int, flip: int, bits: int) -> None:
    packed = bytearray(gzip.compress(WHOLE[format] + content))
    packed[flip % len(packed)] ^= bits
    read_all(format, bytes(packed[: len(packed) - cut]), suffix=".gz")


@pytest.mark.parametrize("format", get_args(PairFormat))
@pytest.mark.parametrize("piece", [b"a", b"\0", b'"', b"[", b"\\", b"\t", b"a,", b"\xe4", b"&", b'{"source":'])
def test_a_line_of_a_megabyte(format: PairFormat, piece: bytes) -> None:
    read_all(format, piece * (2**20 // len(piece)) + b"\n" + WHOLE[format])


@given(source=contents, target=contents)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_aligned_files_of_any_bytes(source: bytes, target: bytes) -> None:
    with file_of(source, "a.txt") as source_path, file_of(target, "b.txt") as target_path:
        pairs, error = outcome(CorpusFiles(source_path, target_path))
    if pairs is None:
        assert "a.txt" in error or "b.txt" in error
    else:
        assert len(pairs) == source.count(b"\n") + bool(source and not source.endswith(b"\n"))
