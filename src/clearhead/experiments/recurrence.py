"""What recurrence costs, against attention: gradients over distance, and steps that must wait for each other."""

from __future__ import annotations

import statistics
import time

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.experiments.learning import (
    Examples,
    Labeller,
    Tagger,
    glorot,
    loss_and_accuracy,
    options,
    random_letters,
    seeded,
    small_shape,
    train_tagger,
)
from clearhead.experiments.result import Chart, Effort, Result, Table, judge
from clearhead.parts.embedding import TokenEmbedding
from clearhead.parts.layers import Encoder

TITLE = "recurrent networks lose gradients over distance and wait for every step"
CLAIM = (
    "RNN and LSTM suffer from vanishing gradients over distance and can't be computed in parallel over the sequence; "
    "attention reaches every distance in one step."
)
FORMULA = """LSTM:       h_t = f(h_{t-1}, x_t): n steps in a row; ∂h_n/∂x_t is a product of n - t factors
attention:  every position from every other: 1 step, and a path of length 1 (table 1)"""

WIDTH, LETTERS = 32, 8
TIMED_WIDTH = 128
"""Of the networks whose passes are timed: wider, as those of use are."""


class LSTMTagger(Labeller):
    """Torch's LSTM in the place of the encoder; of about as many parameters (3 layers against 2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(config.source_vocab, config.d_model)
        self.lstm = nn.LSTM(config.d_model, config.d_model, num_layers=3, batch_first=True)
        self.projection = nn.Linear(config.d_model, config.target_vocab, bias=False)

    def states(self, ids: Tensor) -> Tensor:
        """`(b, t)` token ids to `(b, t, m)`."""
        return self.lstm(self.embedding(ids))[0]


def measure(effort: Effort, seed: int) -> Result:
    """Gradients over distance, recall over distance, and time by length."""
    distances = effort.of([1, 64], [1, 4, 16, 64, 256], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
    gradients = {kind: gradient_over_distance(kind, distances, seed) for kind in ("LSTM", "Transformer")}
    recalls = effort.of([32], [4, 32], [4, 8, 16, 32, 64])
    recalled = {kind: {d: recall(kind, d, effort, seed) for d in recalls} for kind in gradients}
    lengths = effort.of([64], [64, 256, 1024], [64, 128, 256, 512, 1024, 2048])
    seconds = {kind: {n: time_of(kind, n, effort.of(1, 3, 5)) for n in lengths} for kind in gradients}

    far, longest = distances[-1], lengths[-1]
    lost, kept = (gradients[kind][far] / gradients[kind][distances[0]] for kind in gradients)
    faster = {n: seconds["LSTM"][n] / seconds["Transformer"][n] for n in lengths}
    always_faster = all(ratio > 1 for ratio in faster.values())
    d = recalls[-1]
    holds = lost < 1e-3 * kept and recalled["Transformer"][d] > recalled["LSTM"][d] + 0.3
    verdict = (
        f"Over {far} tokens {lost:.0e} of the gradient over one is left in an untrained LSTM and {kept:.2f} in "
        f"an untrained Transformer; a letter {d} tokens back is recalled by {recalled['LSTM'][d]:.0%} and "
        f"{recalled['Transformer'][d]:.0%} after the same updates (guessing: {1 / LETTERS:.0%}); the LSTM needs n "
        f"steps in a row and the Transformer one a layer, and here, with {torch.get_num_threads()} thread(s) "
        f"to be parallel on, it takes {faster[lengths[0]]:.1f} times as long at n = {lengths[0]} and "
        f"{faster[longest]:.1f} times at n = {longest:,}"
        + (", where attention's n² shows." if faster[longest] < faster[lengths[0]] else ".")
    )
    return Result(
        judge(holds, partly=not always_faster or recalled["LSTM"][recalls[0]] > 0.5),
        verdict,
        [
            Table(
                "Gradient of the last state by the input so many tokens before it, untrained",
                ("distance", *gradients),
                [(k, *(gradients[kind][k] for kind in gradients)) for k in distances],
            ),
            Table(
                "Recall the first letter after so many others: accuracy after the same number of updates",
                ("distance", *recalled),
                [(k, *(recalled[kind][k] for kind in recalled)) for k in recalls],
            ),
            Table(
                f"Forward pass of 4 sequences, d_model {TIMED_WIDTH}, and steps that wait for each other",
                ("n", "LSTM, ms", "Transformer, ms", "LSTM, steps", "Transformer, steps"),
                [(n, *(1e3 * seconds[kind][n] for kind in seconds), 3 + n - 1, 2) for n in lengths],
            ),
        ],
        Chart(
            "Gradient over distance, untrained",
            "distance (tokens)",
            "norm of the gradient",
            {kind: list(gradients[kind].items()) for kind in gradients},
            log_x=True,
            log_y=True,
        ),
        ["Steps: an LSTM's layers can follow each other like a wave, so 3 layers of n positions wait n + 2 times."],
    )


def make_network(kind: str, width: int = WIDTH) -> nn.Module:
    """States in, states out: three layers of LSTM, or two of the encoder, which has about as many parameters."""
    if kind == "LSTM":
        return nn.LSTM(width, width, num_layers=3, batch_first=True)
    encoder = Encoder(small_shape(LETTERS, width=width, layers=2, n_heads=2))
    glorot(encoder)
    return encoder


def run(network: nn.Module, x: Tensor) -> Tensor:
    """The states of either network."""
    found = network(x)
    return found[0] if isinstance(found, tuple) else found


def gradient_over_distance(kind: str, distances: list[int], seed: int) -> dict[int, float]:
    """`‖∂(r · state_n) / ∂x_{n-k}‖` of an untrained network, by distance k; `r` is random, the mean of 16 sequences."""
    torch.manual_seed(seed)
    network = make_network(kind).double()  # in float32 the LSTM's gradient would soon be 0
    x = torch.randn(16, distances[-1] + 1, WIDTH, dtype=torch.float64, requires_grad=True)
    last = run(network, x)[:, -1]
    (last * torch.randn_like(last)).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    norms = x.grad.norm(dim=-1).mean(0).flip(0).tolist()
    return {k: norms[k] for k in distances}


def recall(kind: str, distance: int, effort: Effort, seed: int) -> float:
    """Train on naming, at the end, the letter `distance` tokens before; accuracy on fresh sequences."""
    torch.manual_seed(seed)
    config = small_shape(LETTERS, width=WIDTH, layers=2, n_heads=2)
    model: Labeller = LSTMTagger(config) if kind == "LSTM" else Tagger(config)
    generator = seeded(seed)
    train_tagger(model, lambda: recall_task(32, distance, generator), options(effort.of(150, 250, 2000), 3e-3))
    return loss_and_accuracy(model, recall_task(256, distance, seeded(99)))[1]


def recall_task(count: int, distance: int, generator: torch.Generator) -> Examples:
    """Only the last position has a label: the first letter."""
    ids = random_letters(count, distance + 1, LETTERS, generator)
    labels = torch.zeros_like(ids)
    labels[:, -1] = ids[:, 0]
    return ids, labels


@torch.no_grad()
def time_of(kind: str, n: int, repeats: int) -> float:
    """Median seconds of a forward pass."""
    network, x, times = make_network(kind, TIMED_WIDTH).eval(), torch.randn(4, n, TIMED_WIDTH), []
    run(network, x)
    for _ in range(repeats):
        start = time.perf_counter()
        run(network, x)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
