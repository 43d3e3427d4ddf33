"""The page of the benchmarks, and a part that is measured again."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.harness import OURS, Row
from benchmarks.report import SCRIPTS, chosen_scripts, merged, page, table

ROW = Row(work="greedy, tiny", system=OURS, median=4.0, low=3.0, high=5.0, unit="sentences/s")


def row(part: str, work: str, date: str = "2026-01-02", **changes: object) -> Row:
    return dataclasses.replace(ROW, part=part, work=work, date=date, **changes)


def test_what_is_measured_again_takes_the_place_of_what_was() -> None:
    old = [row("training", "a"), row("decoding", "b"), row("decoding", "gone"), row("startup", "c")]
    new = [row("decoding", "b", median=9.0), row("latency", "d")]
    rows = merged(old, new, ["decoding", "latency"])
    assert [(one.part, one.work, one.median) for one in rows] == [
        ("training", "a", 4.0),
        ("decoding", "b", 9.0),
        ("latency", "d", 4.0),
        ("startup", "c", 4.0),
    ]


def test_parts_of_another_day_say_so() -> None:
    text = page([row("training", "a", "2026-01-02"), row("decoding", "b", "2026-01-03")])
    assert "on 2026-01-03;" in text
    assert "Part `training` was measured on 2026-01-02." in text
    assert "Part `decoding`" not in text


def test_parts_of_another_machine_say_so() -> None:
    rows = [
        row("machine", "a", machine="new"),
        row("training", "b", machine="old"),
        row("decoding", "c", machine="new"),
    ]
    text = page(rows)
    assert "- Machine: new\n" in text
    assert "Part `training` was measured on 2026-01-02, on another machine: old." in text
    assert text.count("was measured on") == 1


def test_points_of_a_curve_have_a_column() -> None:
    plain = table([ROW, dataclasses.replace(ROW, system="peer", median=2.0)])
    assert "| system | sentences/s |" in plain
    curve = table([dataclasses.replace(ROW, at="16 tokens"), dataclasses.replace(ROW, at="64 tokens", median=1.0)])
    assert "| at | system | sentences/s |" in curve
    assert "| 64 tokens | clearhead | 1 | ██████ |" in curve  # a quarter of the longest bar
    for text in (plain, curve):
        cells = {line.count("|") for line in text.splitlines() if line.startswith("|")}
        assert len(cells) == 1, text


def test_scripts_are_chosen_by_name() -> None:
    assert chosen_scripts(None) == list(SCRIPTS)
    assert chosen_scripts("latency,training") == ["training", "latency"]
    with pytest.raises(SystemExit, match="there is no 'speed'"):
        chosen_scripts("training,speed")
