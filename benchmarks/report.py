"""Runs every measurement, each in a process of its own, and writes docs/benchmarks.md and docs/benchmarks.json."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from benchmarks.data import ROOT, WORK, text_files
from benchmarks.harness import THREADS, Row
from benchmarks.machine import description

SCRIPTS = ("machine", "training", "decoding", "memory", "startup")
WIDTH = 24
"""Of the longest bar, in characters."""
EIGHTHS = " ▏▎▍▌▋▊▉"

HEAD = """\
# Benchmarks

Written by `make bench` on {date}; the rows are in [benchmarks.json](benchmarks.json) too. Don't edit.

- Machine: {machine}
- Text: {origin}
- Peers: transformers {transformers}, and `torch.nn.Transformer`

Systems that are compared took turns in one run; the figure is the median of the rounds, with the lowest and the highest
behind it. **Ratio** is Clearhead's figure over the best peer's: more is better for rates, less for times and memory.
**Of the peak** is what the work itself needs (padding doesn't count) over the rate of large matrix products on this
machine. Differences under 10 % are a tie.
"""


def measure_all(quick: bool) -> list[Row]:
    """The rows of every script, in order."""
    rows: list[Row] = []
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS)}
    for script in SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.json"
            print(f"== {script}", flush=True)
            command = [sys.executable, "-m", f"benchmarks.{script}", "--rows", str(file), *["--quick"] * quick]
            subprocess.run(command, check=True, cwd=ROOT, env=environment)
            rows += [Row(**row) for row in json.loads(file.read_text("utf-8"))]
    return rows


def bar(share: float) -> str:
    """A bar of `share` of the full width, to an eighth of a character."""
    eighths = round(max(0.0, min(1.0, share)) * WIDTH * 8)
    return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).strip() or EIGHTHS[1]


def number(value: float) -> str:
    """Three figures, or all that stand before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(rows: Iterable[Row]) -> str:
    """A table with bars for each work."""
    parts = []
    for work, group in groupby(rows, key=lambda row: row.work):
        lines = list(group)
        longest = max(row.median for row in lines)
        parts.append(f"## {work[0].upper()}{work[1:]}\n")
        parts.append(f"| system | {lines[0].unit} | | low to high | ratio | of the peak |")
        parts.append("|---|---:|---|---|---:|---:|")
        for row in lines:
            ratio = f"**{row.ratio_to_best_peer:.2f}**" if row.ratio_to_best_peer else ""
            share = f"{row.share_of_peak:.0%}" if row.share_of_peak else ""
            spread = f"{number(row.low)} to {number(row.high)}"
            figures = f"{number(row.median)} | {bar(row.median / longest)} | {spread} | {ratio} | {share}"
            parts.append(f"| {row.system} | {figures} |")
        parts.append("")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="try everything once; the files go to runs/bench/")
    quick = parser.parse_args().quick
    rows = measure_all(quick)
    folder = WORK if quick else ROOT / "docs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.json").write_text(json.dumps([vars(row) for row in rows], indent=2) + "\n", "utf-8")
    head = HEAD.format(
        date=datetime.date.today().isoformat(),
        machine=description(),
        origin=text_files().origin,
        transformers=version("transformers"),
    )
    (folder / "benchmarks.md").write_text(f"{head}\n{table(rows)}", "utf-8")
    print(f"wrote {folder / 'benchmarks.md'}")


if __name__ == "__main__":
    main()
