"""Lines as they arrive."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Timer

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import DataError
from clearhead.text.arrivals import ArrivingLines


@settings(deadline=None, max_examples=60)
@given(content=st.binary(max_size=300), asked=st.booleans())
def test_they_are_the_lines_of_the_file(tmp_path_factory: pytest.TempPathFactory, content: bytes, asked: bool) -> None:
    """Asking whether there is one changes nothing; a file keeps nobody waiting."""
    path = tmp_path_factory.mktemp("arrivals") / "file"
    path.write_bytes(content)
    found = []
    with path.open("rb") as file:
        lines = ArrivingLines(file.fileno())
        while not asked or not lines.must_wait():
            try:
                found.append(next(lines))
            except StopIteration:
                break
    assert found == content.splitlines(keepends=True) if b"\r" not in content else b"".join(found) == content


def test_a_line_longer_than_a_pipe_holds(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 1_000_000 + b"\nb")
    with path.open("rb") as file:
        assert [len(line) for line in ArrivingLines(file.fileno())] == [1_000_001, 1]


def test_what_has_not_arrived_has_to_be_waited_for() -> None:
    reading, writing = os.pipe()
    lines = ArrivingLines(reading)
    assert lines.must_wait()
    os.write(writing, b"one\ntwo\nthr")
    assert not lines.must_wait()
    assert [next(lines), next(lines)] == [b"one\n", b"two\n"]
    assert lines.must_wait()
    os.write(writing, b"ee\n")
    assert not lines.must_wait()
    assert next(lines) == b"three\n"
    os.write(writing, b"four")
    os.close(writing)
    assert not lines.must_wait()
    assert list(lines) == [b"four"]
    os.close(reading)


def test_what_can_not_be_read(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file, pytest.raises(DataError, match="can't be read"):
        next(ArrivingLines(file.fileno()))


def test_a_file_that_does_not_wait_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    lines = ArrivingLines(reading)
    Timer(0.2, lambda: (os.write(writing, b"late\n"), os.close(writing))).start()
    assert list(lines) == [b"late\n"]
    assert list(lines) == []
    os.close(reading)
