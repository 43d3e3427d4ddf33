"""What the machine can do at most: the rate of large float32 matrix products, and what a model's work needs of it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.harness import PEAK, THREADS, Row, run_script, take_turns, throughput_rows
from clearhead.config import ModelConfig

SIDE = 2048
PRODUCTS = 6
FLOPS = PRODUCTS * 2 * SIDE**3


def matrix_products(a: torch.Tensor, b: torch.Tensor) -> None:
    """About half a second of the work at which a processor is best."""
    for _ in range(PRODUCTS):
        torch.mm(a, b)


def measure_peak(rounds: int) -> list[float]:
    """Seconds of `matrix_products`, round by round, with the threads that all measurements use."""
    torch.set_num_threads(THREADS)
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    matrix_products(a, b)
    return take_turns({PEAK: lambda: matrix_products(a, b)}, rounds=rounds)[PEAK]


def peak_flops() -> float:
    """Operations a second in the best of a few rounds: what the machine can do, not what it did while disturbed."""
    return FLOPS / min(measure_peak(3))


def needed_flops(
    config: ModelConfig,
    source_lengths: Sequence[int] | np.ndarray,
    target_lengths: Sequence[int] | np.ndarray,
    *,
    training: bool = False,
    beam_size: int = 1,
) -> float:
    """Floating-point operations of the matrix products that these sentences need, without padding.

    A product of `n` rows with a matrix of `p` numbers is `2 n p`; the backward pass costs twice the forward pass.
    """
    s, t = np.asarray(source_lengths, np.float64), np.asarray(target_lengths, np.float64)
    m, f, v = config.d_model, config.d_ff, config.target_vocab
    encoder = 2 * s * (4 * m * m + 2 * m * f) + 4 * m * s * s
    keys_and_values = 2 * s * 2 * m * m  # of the source, once for all hypotheses
    # Six square matrices a layer: four of self-attention, two of attention to the source. Causal: half of the scores.
    decoder = 2 * t * (6 * m * m + 2 * m * f) + 4 * m * (t * t / 2 + s * t)
    hypotheses = config.decoder_layers * decoder + 2 * t * m * v
    total = (config.encoder_layers * encoder + config.decoder_layers * keys_and_values + beam_size * hypotheses).sum()
    return float(total) * (3 if training else 1)


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
    seconds = {PEAK: measure_peak(1 if quick else 5)}
    return throughput_rows("matrix products, float32", seconds, amount=FLOPS / 1e9, unit="GFLOP/s")


if __name__ == "__main__":
    run_script(measure)
