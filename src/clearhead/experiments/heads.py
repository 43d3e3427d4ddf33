"""What several heads are good for (section 3.2.2)."""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from clearhead.control_tokens import CONTROL_COUNT
from clearhead.experiments.learning import (
    Examples,
    Tagger,
    loss_and_accuracy,
    options,
    random_letters,
    seeded,
    small_shape,
    train_tagger,
)
from clearhead.experiments.result import Chart, Effort, Result, Table, judge
from clearhead.parts.attention import MultiHeadAttention

TITLE = "several heads see several relations at equal cost"
CLAIM = (
    "One head sees one kind of relation; several heads see several of them at once, for the same parameters and work."
)
FORMULA = """MultiHead(x) = Concat(head_1, …, head_h) W_O,   head_i = Attention(x W_Q_i, x W_K_i, x W_V_i)
d_k = d_model / h:  4 d_model² weights and 2 · 2 n² d_model operations on scores, whatever h is"""

WIDTH, LETTERS, TOKENS = 32, 5, 12
NEAR, FAR = 1, 4
"""The task: name both the letter `NEAR` places before and the one `FAR` places before, as one label."""


def measure(effort: Effort, seed: int) -> Result:
    """The same model with 1, 2, 4 and 8 heads: what it costs, and what it learns."""
    heads = effort.of([1, 2], [1, 2, 4, 8], [1, 2, 4, 8, 16])
    seeds = effort.of([seed], [seed, seed + 1], range(seed, seed + 4))
    curves = {h: [learn_both(h, effort, s) for s in seeds] for h in heads}
    loss = {h: statistics.mean(last(curve[0]) for curve in curves[h]) for h in heads}
    right = {h: statistics.mean(curve[1] for curve in curves[h]) for h in heads}
    rows = [(h, WIDTH // h, *cost(h), loss[h], right[h]) for h in heads]

    equal = len({row[2:4] for row in rows}) == 1
    more = heads[-1]
    slower = rows[-1][4] / rows[0][4]
    best = min(heads, key=lambda h: loss[h])
    holds = equal and loss[2] < 0.7 * loss[1]
    verdict = (
        f"With the same {rows[0][2]:,} parameters and {rows[0][3]:,} operations, the training loss on two relations at "
        f"once gets to {loss[1]:.2f} with one head and {loss[2]:.2f} with two ({right[1]:.0%} and {right[2]:.0%} "
        f"right), the least with {best}; equal work is not equal time: {more} heads took {slower:.1f} times as long as "
        "one."
    )
    return Result(
        judge(holds, partly=best != more or slower > 1.2),
        verdict,
        [
            Table(
                f"Name the letters {NEAR} and {FAR} places before; one layer, d_model {WIDTH}",
                ("heads", "d_k", "parameters", "operations", "ms, 256 tokens", "training loss", "accuracy"),
                rows,
            )
        ],
        Chart(
            "Two relations at once",
            "update",
            "training loss (nats)",
            {f"{h} heads": list(enumerate(smooth(curves[h][0][0]), 1)) for h in heads},
        ),
        [f"Mean of {len(seeds)} seed(s). The drawn curves are those of the first."],
    )


def cost(heads: int) -> tuple[int, int, float]:
    """Parameters, operations and milliseconds of multi-head attention over 256 tokens."""
    attention = MultiHeadAttention(WIDTH, heads).eval()
    x, times = torch.randn(1, 256, WIDTH), []
    with torch.no_grad():
        # Torch's counter knows the formula's products, which are the fused kernel's.
        with FlopCounterMode(display=False) as counter:
            formula(attention, x)
        for _ in range(8):
            start = time.perf_counter()
            attention(x)
            times.append(1e3 * (time.perf_counter() - start))
    parameters = sum(parameter.numel() for parameter in attention.parameters())
    return parameters, counter.get_total_flops(), statistics.median(times)


def formula(attention: MultiHeadAttention, x: Tensor) -> Tensor:
    """Multi-head attention as the formula above says it, head by head."""
    query, (key, value) = attention.split_heads(attention.w_q(x)), attention.keys_and_values(x)
    found = [
        (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).softmax(-1) @ v
        for q, k, v in zip(query.unbind(1), key.unbind(1), value.unbind(1), strict=True)
    ]
    return attention.w_o(torch.cat(found, -1))


def learn_both(heads: int, effort: Effort, seed: int) -> tuple[list[float], float]:
    """Train one layer; the loss of every update, and the accuracy on fresh sequences."""
    torch.manual_seed(seed)
    model = Tagger(small_shape(LETTERS, LETTERS**2, width=WIDTH, layers=1, n_heads=heads, d_ff=2 * WIDTH))
    generator = seeded(seed)
    updates = effort.of(300, 450, 3000)
    losses = train_tagger(model, lambda: task(64, generator), options(updates, 5e-3))
    return losses, loss_and_accuracy(model, task(128, seeded(99)))[1]


def task(count: int, generator: torch.Generator) -> Examples:
    """Letters; the label is the pair of the two letters asked for, and the first `FAR` places have none."""
    ids = random_letters(count, TOKENS, LETTERS, generator)
    letters = ids - CONTROL_COUNT
    pair = letters[:, FAR - NEAR : -NEAR] * LETTERS + letters[:, :-FAR] + CONTROL_COUNT
    return ids, nn.functional.pad(pair, (FAR, 0))


def last(losses: list[float]) -> float:
    """The mean of the last tenth."""
    return statistics.mean(losses[-max(1, len(losses) // 10) :])


def smooth(losses: list[float], window: int = 15) -> list[float]:
    """A running mean."""
    return [statistics.mean(losses[max(0, i - window) : i + 1]) for i in range(len(losses))]
