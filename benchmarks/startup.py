"""How long commands take from the shell, beside what the libraries need to be imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from benchmarks.data import text_files
from benchmarks.harness import OURS, Row, cost_rows, run_script, take_turns
from benchmarks.runs import trained_run

TORCH = "python -c 'import torch'"
MARIAN = "python -c 'from transformers import MarianMTModel'"


def measure(quick: bool) -> list[Row]:
    run = str(trained_run(quick=quick))
    line = text_files().test_lines()[0]
    commands = {
        "clearhead --help": ["-m", "clearhead", "--help"],
        "clearhead translate, one line": ["-m", "clearhead", "translate", run, line],
        TORCH: ["-c", "import torch"],
        MARIAN: ["-c", "from transformers import MarianMTModel"],
    }

    def starter(arguments: list[str]) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    starts = {name: starter(arguments) for name, arguments in commands.items()}
    for work in starts.values():
        work()  # the first start reads the files from the disk
    seconds = take_turns(starts, rounds=1 if quick else 7)
    peers = {name: seconds[name] for name in (TORCH, MARIAN)}
    return [
        *cost_rows("start: help", {OURS: seconds["clearhead --help"]}, unit="s"),
        *cost_rows("start: one line, tiny", {OURS: seconds["clearhead translate, one line"], **peers}, unit="s"),
    ]


if __name__ == "__main__":
    run_script(measure)
