"""Runs every measurement, each in a process of its own, and writes docs/benchmarks.md and docs/benchmarks.json."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from benchmarks.ctranslate2_peer import installed_version as ctranslate2_version
from benchmarks.data import ROOT, WORK, text_files
from benchmarks.harness import THREADS, Row
from benchmarks.machine import description

SCRIPTS = (
    "machine", "training", "decoding", "latency", "growth", "memory", "pipe", "startup", "recording",
    "diagnostics", "alignment", "generation", "encoding", "loading",
)  # fmt: skip
"""In the order of the page."""
WIDTH = 24
"""Of the longest bar, in characters."""
EIGHTHS = " ▏▎▍▌▋▊▉"

HEAD = """\
# Benchmarks

Written by `make bench` on {date}; the rows are in [benchmarks.json](benchmarks.json) too. Don't edit.

- Machine: {machine}
- Text: {origin}
- Peers: CTranslate2 {ctranslate2}, transformers {transformers}, and `torch.nn.Transformer`

Systems that are compared took turns in one run; the figure is the median of the rounds, with the lowest and the highest
behind it. **Ratio** is Clearhead's figure over the best peer's: more is better for rates, less for times and memory.
**Of the peak** is what the work itself needs (padding doesn't count) over the rate of large matrix products on this
machine. Differences under 10 % are a tie. Where several systems are compared at several points of a curve, a ratio is
between figures at one point.
"""


def measure_parts(scripts: Sequence[str], *, quick: bool) -> list[Row]:
    """The rows of these scripts, in order."""
    rows: list[Row] = []
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS)}
    for script in scripts:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.json"
            print(f"== {script}", flush=True)
            start = time.monotonic()
            command = [sys.executable, "-m", f"benchmarks.{script}", "--rows", str(file), *["--quick"] * quick]
            subprocess.run(command, check=True, cwd=ROOT, env=environment)
            print(f"   {script} took {time.monotonic() - start:.0f} s", flush=True)
            found = json.loads(file.read_text("utf-8"))
        today = datetime.date.today().isoformat()
        rows += [Row(**{**row, "part": script, "date": today, "machine": description()}) for row in found]
    return rows


def merged(old: Iterable[Row], new: Sequence[Row], scripts: Sequence[str]) -> list[Row]:
    """All rows in the order of the page; what these scripts had measured before is dropped."""
    rows = [*(row for row in old if row.part not in scripts), *new]
    return sorted(rows, key=lambda row: SCRIPTS.index(row.part))


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
        curve = any(row.at for row in lines)
        parts.append(f"## {work[0].upper()}{work[1:]}\n")
        parts.append(f"| {'at | ' * curve}system | {lines[0].unit} | | low to high | ratio | of the peak |")
        parts.append(f"|{'---|' * curve}---|---:|---|---|---:|---:|")
        for row in lines:
            ratio = f"**{row.ratio_to_best_peer:.2f}**" if row.ratio_to_best_peer else ""
            share = f"{row.share_of_peak:.0%}" if row.share_of_peak else ""
            spread = f"{number(row.low)} to {number(row.high)}"
            figures = f"{number(row.median)} | {bar(row.median / longest)} | {spread} | {ratio} | {share}"
            parts.append(f"| {f'{row.at} | ' * curve}{row.system} | {figures} |")
        parts.append("")
    return "\n".join(parts)


def page(rows: Sequence[Row]) -> str:
    """The whole page. Parts that were measured on another day, or on another machine than the rest, say so."""
    newest = max(row.date for row in rows)
    machine = max(rows, key=lambda row: (row.date, row.part == "machine")).machine
    head = HEAD.format(
        date=newest,
        machine=machine,
        origin=text_files().origin,
        ctranslate2=ctranslate2_version(),
        transformers=version("transformers"),
    )
    others = {row.part: (row.date, row.machine) for row in rows if (row.date, row.machine) != (newest, machine)}
    notes = "".join(
        f"\nPart `{part}` was measured on {date}{f', on another machine: {where}' * (where != machine)}.\n"
        for part, (date, where) in others.items()
    )
    return f"{head}{notes}\n{table(rows)}"


def chosen_scripts(names: str | None) -> list[str]:
    """The scripts of `--only`, or all. Ends the program for a name that there is not."""
    wanted = names.split(",") if names else list(SCRIPTS)
    for name in wanted:
        if name not in SCRIPTS:
            sys.exit(f"--only {names}: there is no {name!r}; there are {', '.join(SCRIPTS)}")
    return [script for script in SCRIPTS if script in wanted]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="try everything once; the files go to runs/bench/")
    parser.add_argument("--only", metavar="NAME[,NAME]", help=f"measure these again: {', '.join(SCRIPTS)}")
    options = parser.parse_args()
    scripts = chosen_scripts(options.only)
    folder = WORK if options.quick else ROOT / "docs"
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / "benchmarks.json"
    old = [Row(**row) for row in json.loads(stored.read_text("utf-8"))] if options.only and stored.exists() else []
    rows = merged(old, measure_parts(scripts, quick=options.quick), scripts)
    stored.write_text(json.dumps([vars(row) for row in rows], indent=2) + "\n", "utf-8")
    (folder / "benchmarks.md").write_text(page(rows), "utf-8")
    print(f"wrote {folder / 'benchmarks.md'}")


if __name__ == "__main__":
    main()
