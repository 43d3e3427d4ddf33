"""Rounds that take turns, and the rows that are made of them."""

from __future__ import annotations

import pytest

from benchmarks.harness import OURS, Timed, cost_rows, seconds_of, take_turns, throughput_rows


def test_every_system_begins_a_round_in_its_turn() -> None:
    calls: list[str] = []
    systems = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    seconds = take_turns(systems, rounds=4)
    assert "".join(calls) == "abcbcacababc"
    assert {name: len(times) for name, times in seconds.items()} == {"a": 4, "b": 4, "c": 4}


def test_the_time_of_another_process_is_its_own() -> None:
    assert seconds_of(lambda: Timed(1234.5, "outputs")) == 1234.5


def test_rates_are_compared_with_the_fastest_peer() -> None:
    seconds = {OURS: [2.0, 1.0, 4.0], "slow": [8.0, 8.0, 1.0], "fast": [4.0, 4.0, 5.0]}
    ours, slow, fast = throughput_rows("work", seconds, amount=8, unit="things/s", share_of_peak=0.5)
    assert (ours.median, ours.low, ours.high) == (4.0, 2.0, 8.0)
    assert (slow.median, fast.median) == (1.0, 2.0)
    assert ours.ratio_to_best_peer == 4.0 / 2.0
    assert slow.ratio_to_best_peer is None
    # One second for the whole would be half of the peak; ours takes two.
    assert [row.share_of_peak for row in (ours, slow, fast)] == pytest.approx([0.25, 0.0625, 0.125])


def test_costs_are_compared_with_the_cheapest_peer() -> None:
    ours, *_ = cost_rows("work", {OURS: [3.0], "dear": [12.0], "cheap": [6.0]}, unit="s", at="64 tokens")
    assert ours.ratio_to_best_peer == 0.5
    assert ours.at == "64 tokens"
    (alone,) = cost_rows("work", {OURS: [3.0]}, unit="s")
    assert alone.ratio_to_best_peer is None
