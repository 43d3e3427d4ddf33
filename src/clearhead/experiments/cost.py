"""What attention costs by the length of the sequence (table 1)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from clearhead.config import ModelConfig
from clearhead.experiments.result import Chart, Effort, Result, Table, judge, power_of
from clearhead.parts.attention import fused_attention, scaled_dot_product_attention
from clearhead.parts.layers import EncoderLayer

TITLE = "attention is O(n²·d) in time, and in memory unless fused"
CLAIM = "Q Kᵀ is O(n²·d): the main bottleneck of the Transformer."
FORMULA = """attention:      2 · 2 n² d operations (Q Kᵀ and weights · V), and h n² weights kept unless fused
a whole layer:  4 n² d + 8 n d² (projections) + 4 n d d_ff;  with d_ff = 4 d attention is n / (n + 6 d) of it"""

WIDTH, HEADS = 64, 4

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
PATHS: dict[str, Attention] = {
    "formula": lambda query, key, value: scaled_dot_product_attention(query, key, value)[0],
    "fused": fused_attention,
}


def measure(effort: Effort, seed: int) -> Result:
    """Operations, memory and time by length, for the formula and for the fused kernel."""
    lengths = effort.of([64, 256], [128, 256, 512, 1024, 2048], [128, 256, 512, 1024, 2048, 4096])
    operations = {n: attention_operations(n) for n in lengths}
    kept = {name: {n: kept_bytes(path, n) for n in lengths} for name, path in PATHS.items()}
    seconds = {name: {n: time_of(path, n, effort.of(1, 3, 5)) for n in lengths} for name, path in PATHS.items()}
    rows = [
        (
            n,
            operations[n] / 1e6,
            *(kept[name][n] / 2**20 for name in PATHS),
            *(1e3 * seconds[name][n] for name in PATHS),
        )
        for n in lengths
    ]
    shares = [(n, d, attention_share(n, d), n / (n + 6 * d)) for d in (64, 512) for n in (64, 512, 4096)]

    grows = {
        "operations": power_of(lengths, list(operations.values())),
        "formula": power_of(lengths, list(kept["formula"].values())),
        "fused": power_of(lengths, list(kept["fused"].values())),
    }
    times = {name: power_of(lengths[-3:], list(seconds[name].values())[-3:]) for name in PATHS}
    share = shares[4][2]
    holds = grows["operations"] > 1.9 and grows["formula"] > 1.5 and grows["fused"] < 1.1
    verdict = (
        f"Operations grow as n^{grows['operations']:.2f}, the memory kept for the backward pass as "
        f"n^{grows['formula']:.2f} by the formula and as n^{grows['fused']:.2f} when fused, the time at the longest "
        f"lengths as n^{times['formula']:.1f} and n^{times['fused']:.1f}; but the main bottleneck it is only in long "
        f"sequences: at d_model 512 and 512 tokens attention is {share:.0%} of a layer's operations, and half of them "
        f"only from n = 6 · 512 = 3,072 on."
    )
    return Result(
        judge(holds, partly=True),
        verdict,
        [
            Table(
                f"Attention of {HEADS} heads, d_model {WIDTH}, one sentence, forward and backward for the memory",
                ("n", "million operations", "MiB, formula", "MiB, fused", "ms, formula", "ms, fused"),
                rows,
            ),
            Table(
                "Attention's share of an encoder layer's operations (d_ff = 4 d_model)",
                ("n", "d_model", "counted", "n / (n + 6 d)"),
                shares,
            ),
        ],
        Chart(
            "Memory kept for the backward pass",
            "n",
            "MiB",
            {name: [(n, size / 2**20) for n, size in kept[name].items()] for name in PATHS},
            log_x=True,
            log_y=True,
        ),
    )


def projections(n: int, *, gradient: bool = False) -> list[Tensor]:
    """Queries, keys and values `(1, h, n, d)`."""
    return [torch.randn(1, HEADS, n, WIDTH // HEADS, requires_grad=gradient) for _ in range(3)]


def attention_operations(n: int) -> int:
    """Multiplications and additions of the formula, counted by torch."""
    with FlopCounterMode(display=False) as counter:
        PATHS["formula"](*projections(n))
    return counter.get_total_flops()


def attention_share(n: int, d: int) -> float:
    """Of all operations of an encoder layer, counted on shapes alone (nothing is computed)."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        layer = EncoderLayer(ModelConfig(source_vocab=5, target_vocab=5, d_model=d, d_ff=4 * d, n_heads=4))
        for name in ("self_attention", "feed_forward"):
            getattr(layer, name)(torch.empty(1, n, d))
    whole = counter.get_total_flops()
    return whole and (whole - 24 * n * d * d) / whole


def kept_bytes(attention: Attention, n: int) -> int:
    """Memory that autograd keeps until the backward pass, each storage counted once."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = attention(*projections(n, gradient=True))
    del output
    return sum(kept.values())


@torch.no_grad()
def time_of(attention: Attention, n: int, repeats: int) -> float:
    """Median seconds of a forward pass."""
    tensors, times = projections(n), []
    attention(*tensors)
    for _ in range(repeats):
        start = time.perf_counter()
        attention(*tensors)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
