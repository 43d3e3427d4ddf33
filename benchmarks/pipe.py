"""Memory of `clearhead translate` at the end of a pipe of a million lines, and how far ahead it reads.

A million lines would take hours. So a pipe that would give a million is read for the first some thousand of them: the
memory is bounded if its peak is the same after half of them and after all. How far ahead the command reads is the lines
that it was given less those that it wrote.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

from benchmarks.data import text_files
from benchmarks.harness import OURS, THREADS, Row, cost_rows, run_script
from benchmarks.runs import bench_translator, trained_run
from clearhead.run_folder import RunFolder
from clearhead.training.checkpoints import save_weights_atomically

LINES = 1_000_000
"""What the pipe would give."""
SHORT = ("--beam-size", "1", "--max-length-ratio", "0", "--max-length-extra", "3")
"""Outputs of three tokens: many lines in little time."""
USUAL = ("--beam-size", "5", "--max-length-ratio", "0", "--max-length-extra", "20")
"""A beam of the usual size, and outputs a little longer than sentences are."""
READ = {SHORT: 12_000, USUAL: 3_000}
"""Lines to read until it is enough."""


@dataclass
class Seen:
    """What was seen of a process that reads a pipe."""

    given: int = 0
    """Lines that went into the pipe so far."""
    ahead: int = 0
    """The most lines that had been given and not yet answered."""
    peaks: list[float] = field(default_factory=list)
    """GiB of its resident memory at most, after half of the lines and after all."""


def base_run(folder: Path, *, quick: bool) -> Path:
    """A run folder of the base shape (of the tiny one, in a quick try).

    Its outputs are nonsense, as what benchmarks/widen.py does to the positions isn't saved; memory doesn't mind.
    """
    tiny = RunFolder(trained_run(quick=quick))
    if quick:
        return tiny.path
    model = bench_translator("base", quick=False).model
    base = RunFolder(folder / "base")
    base.path.mkdir()
    base.write_recipe(tiny.read_recipe())
    base.write_config(model.config)
    base.shared_tokenizer.write_bytes(tiny.shared_tokenizer.read_bytes())
    model.tie_weights()  # laid out for decoding they were two
    save_weights_atomically(model, base.model)
    return base.path


def read_pipe(run: Path, options: tuple[str, ...], lines: int) -> Seen:
    """Let the command read until it has written so many lines, then end it."""
    command = [sys.executable, "-m", "clearhead", "translate", str(run), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS)}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    pipe, seen = process.stdin, Seen()
    text = text_files().source.read_bytes().split(b"\n")

    def give() -> None:
        with contextlib.suppress(BrokenPipeError, ValueError):
            for line in islice(cycle(text), LINES):
                pipe.write(line + b"\n")
                pipe.flush()
                seen.given += 1

    giver = threading.Thread(target=give, daemon=True)
    giver.start()
    for written, _ in enumerate(islice(process.stdout, lines), start=1):
        seen.ahead = max(seen.ahead, seen.given - written + 1)
        if written in (lines // 2, lines):
            seen.peaks.append(peak_gibibytes(process.pid))
    process.kill()
    process.wait()
    giver.join()
    process.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        pipe.close()
    return seen


def peak_gibibytes(pid: int) -> float:
    """The largest resident memory so far of a process that runs (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    (kibibytes,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kibibytes) / 2**20


def measure(quick: bool) -> list[Row]:
    rows = []
    preset = "tiny" if quick else "base"
    with tempfile.TemporaryDirectory() as folder:
        run = base_run(Path(folder), quick=quick)
        for title, options in (("outputs of 3 tokens", SHORT), ("beam 5", USUAL)):
            lines = 3_000 if quick else READ[options]
            seen = read_pipe(run, options, lines)
            work = f"{preset} at a pipe of {LINES:,} lines, {title}"
            for count, peak in zip((lines // 2, lines), seen.peaks, strict=True):
                rows += cost_rows(f"peak memory, {work}", {OURS: [peak]}, unit="GiB", at=f"after {count:,} lines")
            ahead = {OURS: [float(seen.ahead)]}
            rows += cost_rows(f"read ahead, {work}", ahead, unit="lines at most", at=f"within {lines:,} lines")
    return rows


if __name__ == "__main__":
    run_script(measure)
