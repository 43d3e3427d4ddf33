"""Which references belong to which source, and outputs to both."""

import os
from pathlib import Path

import pytest

from clearhead.errors import DataError
from clearhead.evaluation.reference_sets import (
    from_aligned_files,
    from_corpus_files,
    from_pairs,
    from_reference_columns,
)
from clearhead.text.readers import CorpusFiles

DATA = Path(os.environ.get("CLEARHEAD_DATA", Path(__file__).parents[3] / "shared" / "data"))


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_lines_with_the_same_source_are_merged_in_a_file_of_pairs(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "read\tR EH D\nlead\tL EH D\nread\tR IY D\nread\tR EH D\n")
    found = from_corpus_files(CorpusFiles(pairs=path))
    assert found.sources == ["read", "lead"]
    assert found.references == [["R EH D", "R IY D"], ["L EH D"]]
    assert (found.first_lines, found.line_count) == ([0, 1], 4)


def test_two_aligned_files_stay_line_by_line(tmp_path: Path) -> None:
    source, target = write(tmp_path / "s", "a\na\n"), write(tmp_path / "t", "x\ny\n")
    for found in (
        from_corpus_files(CorpusFiles(source=source, target=target)),
        from_aligned_files(source, [target]),
    ):
        assert found.sources == ["a", "a"]
        assert found.references == [["x"], ["y"]]


def test_several_reference_files_and_no_sources(tmp_path: Path) -> None:
    source = write(tmp_path / "s", "a\nb\n")
    references = [write(tmp_path / "r1", "x\ny\n"), write(tmp_path / "r2", "x2\ny\n")]
    assert from_aligned_files(source, references).references == [["x", "x2"], ["y"]]
    assert from_aligned_files(None, references).references == [["x", "x2"], ["y"]]


def test_references_in_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "x.ref", "read\tR EH D\tR IY D\nlead\tL EH D\t\nread\tR EH D\n\n")
    found = from_reference_columns(path)
    assert found.references == [["R EH D", "R IY D"], ["L EH D"]]


def test_outputs_by_source_or_by_line(tmp_path: Path) -> None:
    # case D4: the blank line keeps its place in the output file
    found = from_pairs("x.tsv", [("a", ["1"]), ("", [""]), ("b", ["2"]), ("a", ["3"])], merge=True)
    assert found.align_outputs(["A", "", "B", "A again"], "out") == ["A", "B"]
    assert found.align_outputs(["A", "B"], "out") == ["A", "B"]
    with pytest.raises(DataError, match=r"out has 3 lines but x\.tsv has 4 \(2 different sources\)"):
        found.align_outputs(["A", "B", "C"], "out")


def test_different_line_counts_are_refused_by_name_and_count(tmp_path: Path) -> None:
    # case D2
    source, target = write(tmp_path / "s", "a\nb\n"), write(tmp_path / "t", "x\ny\n\n")
    with pytest.raises(DataError, match=r"s has 2 lines, .*t has 3 lines"):
        from_aligned_files(source, [target])


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    # case D1
    source, target = write(tmp_path / "s", "a\u2028b\r\nc\x0bd\n"), write(tmp_path / "t", "x\ny\x85z\n")
    assert from_aligned_files(source, [target]).sources == ["a\u2028b", "c\x0bd"]


def test_what_holds_nothing_is_an_error(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.tsv", "\n\n")
    with pytest.raises(DataError, match=r"empty\.tsv is empty"):
        from_corpus_files(CorpusFiles(pairs=empty))
    with pytest.raises(DataError, match=r"x\.ref, line 2: no tab"):
        from_reference_columns(write(tmp_path / "x.ref", "a\tb\nword\n"))


def test_cmudict_test_set() -> None:
    path = DATA / "cmudict-g014b2b" / "g014b2b.ref"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    found = from_reference_columns(path)
    assert len(found) == 12_000
    assert sum(map(len, found.references)) == 12_753
