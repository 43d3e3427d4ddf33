"""How much memory is taken at the peak, by a process of its own for each figure.

Training `base` on batches of 4,096 tokens; and a corpus of 2 million pairs: made, encoded, and gone through once.
"""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.harness import OURS, THREADS, Row, cost_rows, run_script

UPDATES = 2
PAIRS = 2_000_000


def peak_gibibytes(*arguments: str) -> float:
    """The largest resident set of a Python process."""
    command = [sys.executable, *arguments]
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed")
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**30


def train(system: str, updates: int) -> None:
    """A few updates of `base` on full batches of random tokens, 32 long on both sides."""
    import torch

    from benchmarks.training import BATCH_TOKENS, SYSTEMS, Setting, shape
    from clearhead.text.batches import collate

    torch.set_num_threads(THREADS)
    vocabulary, length = 10_000, 32
    step = SYSTEMS[system](shape("base", vocabulary), Setting())
    for _ in range(updates):
        ids = torch.randint(4, vocabulary, (2, BATCH_TOKENS // length, length - 1)).tolist()
        step(collate(list(zip(*ids, strict=True))))


def measure(quick: bool) -> list[Row]:
    from benchmarks.training import SYSTEMS

    updates, pairs = (1, 20_000) if quick else (UPDATES, PAIRS)
    training = {s: [peak_gibibytes("-m", "benchmarks.memory", "--train", s, str(updates))] for s in SYSTEMS}
    corpus = {OURS: [peak_gibibytes("-m", "benchmarks.corpus_memory", "--pairs", str(pairs))]}
    return [
        *cost_rows("peak memory of training, base", training, unit="GiB"),
        *cost_rows(f"peak memory of a corpus of {pairs:,} pairs", corpus, unit="GiB"),
    ]


if __name__ == "__main__":
    if "--train" in sys.argv:
        train(sys.argv[-2], int(sys.argv[-1]))
    else:
        run_script(measure)
