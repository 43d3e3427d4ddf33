"""What dropout does for a model with little data (section 5.4)."""

from __future__ import annotations

import torch
from torch import nn

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
from clearhead.parts.dropout import LEVELS, Dropout

TITLE = "dropout regularises where data are few"
CLAIM = "Dropout on the attention weights and on every sublayer's output keeps a model from learning its data by heart."
FORMULA = "Dropout(x) = x · keep / (1 - p),   keep = 0 with probability p, else 1;   nothing outside training"

LETTERS, TOKENS, WIDTH = 8, 10, 32
SENTENCES, WRONG = 48, 0.15
"""Few sentences, and a share of their labels is wrong: to know those means to have learned them by heart."""

RATES = {
    "none": (0.0, 0.0),
    "weights": (0.0, 0.2),
    "sublayers": (0.2, 0.0),
    "both": (0.2, 0.2),
    "both, 0.5": (0.5, 0.5),
}
"""Rates on sublayers (with embeddings and the feed-forward network), and on attention weights."""


def measure(effort: Effort, seed: int) -> Result:
    """Training and test loss after many passes over little data, by where dropout falls."""
    names = effort.of(["none", "both"], list(RATES), list(RATES))
    found = {name: train_and_test(name, effort, seed) for name in names}
    many = {name: train_and_test(name, effort, seed, SENTENCES * 40) for name in ("none", "both")}
    expectation = {p: mean_kept(p) for p in (0.1, 0.5)}

    none, both = found["none"], found["both"]
    helps_less = many["none"][1] - many["both"][1] < 0.5 * (none[1] - both[1])
    holds = both[1] < 0.9 * none[1] and both[0] > none[0]
    verdict = (
        f"On {SENTENCES} sentences the model without dropout gets to a loss of {none[0]:.2f} on them and {none[1]:.2f} "
        f"on others, with dropout of 0.2 everywhere to {both[0]:.2f} and {both[1]:.2f}"
        + (f" (on the weights alone {found['weights'][1]:.2f})" if "weights" in found else "")
        + f"; with 40 times the sentences the test losses are {many['none'][1]:.2f} and {many['both'][1]:.2f}"
        + (": there dropout has little or nothing to give." if helps_less else ".")
    )
    rows = [(SENTENCES, name, *RATES[name], *found[name]) for name in names]
    rows += [(SENTENCES * 40, name, *RATES[name], *many[name]) for name in many]
    return Result(
        judge(holds, partly=helps_less),
        verdict,
        [
            Table(
                f"Name the letter before; {WRONG:.0%} of the training labels are wrong, none of the test's",
                ("sentences", "dropout", "sublayers", "weights", "training loss", "test loss", "test accuracy"),
                rows,
            )
        ],
        Chart(
            f"Loss on {SENTENCES} sentences",
            "rate of dropout, everywhere",
            "loss (nats)",
            {
                side: [(RATES[name][0], found[name][place]) for name in names if len(set(RATES[name])) == 1]
                for place, side in enumerate(("training", "test"))
            },
        ),
        [f"The mean of 1 after dropout: {', '.join(f'{mean:.3f} at p = {p}' for p, mean in expectation.items())}."],
    )


def mean_kept(p: float) -> float:
    """The mean of ones after dropout: 1, if what is kept is scaled rightly. On a CPU p is rounded to n/256."""
    return float(Dropout(round(p * LEVELS) / LEVELS).train()(torch.ones(200_000)).mean())


def train_and_test(name: str, effort: Effort, seed: int, sentences: int = SENTENCES) -> tuple[float, float, float]:
    """Training loss (in evaluation mode), test loss and test accuracy."""
    torch.manual_seed(seed)
    sublayers, weights = RATES[name]
    config = small_shape(LETTERS, width=WIDTH, layers=2, n_heads=2, dropout=sublayers, attention_dropout=weights)
    model, generator = Tagger(config), seeded(seed)
    ids, labels = task(sentences, WRONG, generator)

    def draw() -> Examples:
        chosen = torch.randint(len(ids), (48,), generator=generator)
        return ids[chosen], labels[chosen]

    train_tagger(model, draw, options(effort.of(200, 300, 2000), 3e-3))
    test_loss, accuracy = loss_and_accuracy(model, task(256, 0.0, seeded(99)))
    return loss_and_accuracy(model, (ids, labels))[0], test_loss, accuracy


def task(count: int, wrong: float, generator: torch.Generator) -> Examples:
    """The letter before each; a share of the labels is drawn by chance."""
    ids = random_letters(count, TOKENS, LETTERS, generator)
    labels = nn.functional.pad(ids[:, :-1], (1, 0))
    chance = torch.randint_like(labels, CONTROL_COUNT, CONTROL_COUNT + LETTERS, dtype=torch.int64)
    is_wrong = torch.rand(labels.shape, generator=generator) < wrong
    return ids, torch.where(is_wrong & (labels > 0), chance, labels)
