"""Lines of files: what ends a line, encodings, gzip, blank texts."""

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import DataError
from clearhead.text.lines import count_lines, is_blank, read_lines
from clearhead.text.readers import CorpusFiles, Pair, read_pairs

# What str.splitlines takes for a line's end, or Python's text mode, beside \n and \r.
FALSE_LINE_ENDS = ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"]


def lines_of(content: bytes) -> list[str]:
    return list(read_lines(io.BytesIO(content)))


@pytest.mark.parametrize("separator", FALSE_LINE_ENDS)
def test_only_newline_ends_a_line(separator: str, tmp_path: Path) -> None:
    # case D1
    source, target = tmp_path / "a.src", tmp_path / "a.tgt"
    source.write_bytes(f"a{separator}b\nc\n".encode())
    target.write_bytes(b"x\ny\n")
    pairs = list(read_pairs(CorpusFiles(source, target)))
    assert pairs == [Pair(f"a{separator}b", "x", 1), Pair("c", "y", 2)]


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])), min_size=1))
def test_lines_come_back_as_written(lines: list[str]) -> None:
    # case D1: whatever the lines hold, N lines in are N lines out
    lines[0] = lines[0].lstrip("\ufeff")
    assert lines_of("".join(line + "\n" for line in lines).encode()) == lines


def test_line_ends_of_all_systems_read_the_same() -> None:
    # case D8
    expected = ["a b", "c", "d"]
    for content in (b"a b\nc\nd\n", b"a b\r\nc\r\nd\r\n", b"a b\r\nc\nd", b"a\rb\r\r\nc\r\nd\r"):
        assert lines_of(content) == expected
        assert lines_of(b"\xef\xbb\xbf" + content) == expected


def test_byte_order_mark_only_at_the_start_is_dropped() -> None:
    # case D8
    assert lines_of("\ufeffa\n\ufeffb\n".encode()) == ["a", "\ufeffb"]


def test_blank_lines_and_a_missing_last_newline_are_counted() -> None:
    # case D4
    assert lines_of(b"a\n\nb\n") == ["a", "", "b"]
    assert lines_of(b"\n\n\n") == ["", "", ""]
    assert lines_of(b"  \n \n") == ["  ", " "]
    assert lines_of(b"a\n\nb") == ["a", "", "b"]
    assert lines_of(b"") == []


def test_wrong_bytes_are_named_with_file_and_line(tmp_path: Path) -> None:
    # case D7
    path = tmp_path / "latin.txt"
    path.write_bytes(b"good\n" * 499 + b"caf\xe9\n" + b"good\n")
    with pytest.raises(DataError, match=r"latin\.txt, line 500: byte 0xe9 at position 3"):
        list(read_lines(path))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_recognised(encoding: str, tmp_path: Path) -> None:
    # case D7
    path = tmp_path / "wide.txt"
    path.write_bytes("\ufeffgrüße\n".encode(encoding))
    with pytest.raises(DataError, match="UTF-16"):
        list(read_lines(path))


def test_the_locale_does_not_matter(tmp_path: Path) -> None:
    # case D7
    path = tmp_path / "a.txt"
    path.write_bytes("Grüße, 你好\n".encode())
    program = (
        "import sys; from clearhead.text.lines import read_lines; "
        "sys.stdout.buffer.write(ascii([*read_lines(sys.argv[1])]).encode())"
    )
    environment = os.environ | {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", program, path], env=environment, capture_output=True, check=True)
    assert done.stdout.decode() == ascii(["Grüße, 你好"])


def test_gzip_reads_like_the_plain_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("ä\u2028b\n\nc".encode()))
    assert list(read_lines(path)) == ["ä\u2028b", "", "c"]
    assert count_lines(path) == 3


def test_broken_gzip_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(10_000))
    for name, content in {
        "cut.gz": whole[:-100],
        "plain.gz": b"plain text\n",
        "bent.gz": whole[:5000] * 2,
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=name):
            list(read_lines(tmp_path / name))


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.txt", tmp_path, tmp_path / "absent.txt.gz", Path("a\0b")):
        with pytest.raises(DataError):
            list(read_lines(path))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("ä\u2028\r\nb".encode()), encoding="ascii"))
    assert list(read_lines("-")) == ["ä\u2028", "b"]


@pytest.mark.parametrize("blank", ["", " ", "\u00a0", "\u200b", "\t\ufeff", "\u3000\u2028\x00\u2060", "\u3164"])
def test_blank_texts(blank: str) -> None:
    # case D5
    assert is_blank(blank)
    assert not is_blank(blank + "." + blank)


@pytest.mark.parametrize("visible", ["0", "。", "\U0001f468", "\u0301", "▁"])
def test_visible_texts(visible: str) -> None:
    assert not is_blank(visible)


@pytest.mark.parametrize(
    ("source_lines", "target_lines"), [(100, 99), (99, 100), (100, 101)], ids=["short", "long", "extra blank"]
)
def test_different_line_counts_are_refused(source_lines: int, target_lines: int, tmp_path: Path) -> None:
    # case D2
    source, target = tmp_path / "train.en", tmp_path / "train.de"
    source.write_text("a\n" * source_lines)
    target.write_text("b\n" * min(100, target_lines) + "\n" * max(0, target_lines - 100))
    with pytest.raises(DataError) as caught:
        next(read_pairs(CorpusFiles(source, target)))  # before the first pair
    for part in (str(source), str(target), f"{source_lines:,} lines", f"{target_lines:,}"):
        assert part in str(caught.value)
