"""What the machine can do at most: the rate of large float32 matrix products."""

from __future__ import annotations

import os
import platform
import sys

import torch

from benchmarks.harness import PEAK, THREADS, Row, rows_of, run_script
from clearhead.evaluation.speed import product_rates


def peak_flops() -> float:
    """Operations a second in the best of a few rounds: what the machine can do, not what it did while disturbed."""
    torch.set_num_threads(THREADS)
    return max(product_rates(3))


def description() -> str:
    """The machine and the versions, in one sentence."""
    processor = platform.processor() or platform.machine()
    cpuinfo = "/proc/cpuinfo"
    if os.path.exists(cpuinfo):
        with open(cpuinfo, encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        processor = names[0] if names else processor
    versions = f"Python {sys.version.split()[0]}, torch {torch.__version__}"
    return f"{processor}, {os.cpu_count()} cores, {THREADS} threads; {versions}"


def measure(quick: bool) -> list[Row]:
    torch.set_num_threads(THREADS)
    rates = [rate / 1e9 for rate in product_rates(1 if quick else 5)]
    return rows_of("matrix products, float32", {PEAK: rates}, unit="GFLOP/s", best=max)


if __name__ == "__main__":
    run_script(measure)
