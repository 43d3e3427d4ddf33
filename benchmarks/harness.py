"""What every measurement shares: interleaved rounds, rows of the table, and the command line of a script.

Times on a shared machine drift by 15 % within minutes, so the systems that are compared take turns within each round,
and only their ratios count; the median of the rounds stands in the table, with the lowest and the highest beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

THREADS = 2
PRESETS = ("tiny", "base")
"""The shapes that are measured; a quick try leaves the large one out."""
OURS = "clearhead"
PEAK = "matrix-product peak"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    work: str
    system: str
    median: float
    low: float
    high: float
    unit: str
    ratio_to_best_peer: float | None = None
    """Ours over the best peer's figure, by medians; `None` for the peers and where there is none."""
    share_of_peak: float | None = None
    """Floating-point operations that the work needs (no padding counted) over what matrix products reach."""
    at: str = ""
    """The point of a curve: `64 tokens`. Ratios are between figures at the same point."""
    part: str = ""
    """The script that measured it …"""
    date: str = ""
    """… when …"""
    machine: str = ""
    """… and where; `benchmarks.report` fills in all three."""


@dataclass(frozen=True)
class Timed:
    """What a system gives back that ran in another process: its own time counts, not the way there and back."""

    seconds: float
    value: Any


def seconds_of(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    result = work()
    return result.seconds if isinstance(result, Timed) else time.perf_counter() - start


def take_turns(systems: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, list[float]]:
    """Seconds of every system in every round. Each round begins with another system, so that none is always first."""
    names = list(systems)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for round_number in range(rounds):
        shift = round_number % len(names)
        for name in names[shift:] + names[:shift]:
            seconds[name].append(seconds_of(systems[name]))
        print(f"  round {round_number + 1}/{rounds}: " + ", ".join(f"{n} {s[-1]:.2f} s" for n, s in seconds.items()))
    return seconds


def throughput_rows(
    work: str,
    seconds: Mapping[str, Sequence[float]],
    *,
    amount: float,
    unit: str,
    share_of_peak: float | None = None,
    at: str = "",
) -> list[Row]:
    """Rows of `amount` units done in each round's seconds; the more the better.

    `share_of_peak` is that of a system which would need one second for the whole.
    """
    rates = {name: [amount / s for s in times] for name, times in seconds.items()}
    return rows_of(work, rates, unit=unit, best=max, share_of_peak=share_of_peak and share_of_peak / amount, at=at)


def cost_rows(work: str, costs: Mapping[str, Sequence[float]], *, unit: str, at: str = "") -> list[Row]:
    """Rows of costs (seconds, bytes); the less the better. The ratio is ours over the best peer's here too."""
    return rows_of(work, costs, unit=unit, best=min, at=at)


def rows_of(
    work: str,
    figures: Mapping[str, Sequence[float]],
    *,
    unit: str,
    best: Callable[[Sequence[float]], float],
    share_of_peak: float | None = None,
    at: str = "",
) -> list[Row]:
    """A row for each system; `share_of_peak` is that of a figure of 1."""
    medians = {name: statistics.median(values) for name, values in figures.items()}
    peers = [median for name, median in medians.items() if name != OURS]
    return [
        Row(
            work=work,
            system=name,
            median=medians[name],
            low=min(values),
            high=max(values),
            unit=unit,
            ratio_to_best_peer=medians[name] / best(peers) if name == OURS and peers else None,
            share_of_peak=share_of_peak and share_of_peak * medians[name],
            at=at,
        )
        for name, values in figures.items()
    ]


def run_script(measure: Callable[[bool], Sequence[Row]]) -> None:
    """The command line of a script: `--quick` measures little, `--rows FILE` writes the rows as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--quick", action="store_true", help="one short round, tiny only: does it run, and roughly how fast"
    )
    parser.add_argument("--rows", type=Path, help="write the rows to this JSON file")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    rows = measure(options.quick)
    for row in rows:
        ratio = f"  {row.ratio_to_best_peer:.2f} of the best peer" if row.ratio_to_best_peer else ""
        share = f"  {row.share_of_peak:.0%} of the peak" if row.share_of_peak else ""
        what = ", ".join(filter(None, (row.work, row.at)))
        print(f"{what}: {row.system} {row.median:,.4g} {row.unit} ({row.low:,.4g} to {row.high:,.4g}){ratio}{share}")
    if options.rows:
        options.rows.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
