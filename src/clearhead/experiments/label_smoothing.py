"""What label smoothing does to loss, confidence and accuracy (section 5.4)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from clearhead.experiments.dates_task import held_out_batch, train_dates
from clearhead.experiments.result import Chart, Effort, Result, Table, judge
from clearhead.models.transformer import Transformer
from clearhead.text.batches import Batch

TITLE = "label smoothing makes a model less sure of itself"
CLAIM = (
    "Label smoothing of 0.1 hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU."
)
FORMULA = """loss = -(1 - e) log p[y] - e / (V - 2) Σ log p[k] over every k but y and padding
least when p[y] = 1 - e:  then it is its own entropy, H(e) = -(1 - e) ln(1 - e) - e ln(e / (V - 2))"""

LEAST_GAIN = 0.02
"""In accuracy. The same seed gained 0.1 points on one machine and lost 1.3 on another: less than this is chance."""
NO_GAIN = "accuracy gained no more than another seed or machine would take back"


class Measured(NamedTuple):
    """A trained model on the test pairs, teacher-forced."""

    perplexity: float
    accuracy: float
    confidence: float
    """Mean probability of the token that it finds most likely."""
    gap: float
    """Confidence minus accuracy: above 0 too sure, below 0 too unsure."""


def measure(effort: Effort, seed: int) -> Result:
    """The same training with several amounts of smoothing."""
    amounts = effort.of([0.0, 0.1], [0.0, 0.1, 0.3], [0.0, 0.05, 0.1, 0.2, 0.3])
    updates = effort.of(200, 350, 2000)
    found: dict[float, Measured] = {}
    curves: dict[float, list[float]] = {}
    _, batch = held_out_batch(effort)
    for amount in amounts:
        model, losses = train_dates(effort, seed, updates=updates, rate=4e-3, warmup=updates // 4, smoothing=amount)
        found[amount], curves[amount] = measured(model, batch), losses
    plain, smooth = found[0.0], found[0.1]
    unsure = smooth.perplexity > plain.perplexity and smooth.confidence < plain.confidence
    better = smooth.accuracy > plain.accuracy + LEAST_GAIN
    verdict = (
        f"With smoothing of 0.1 the test perplexity is {smooth.perplexity:.3f} instead of {plain.perplexity:.3f} and "
        f"the mean confidence {smooth.confidence:.1%} instead of {plain.confidence:.1%}; the accuracy is "
        f"{smooth.accuracy:.1%} instead of {plain.accuracy:.1%}"
        + ("." if better else f": on this small task, where each text has one right answer, {NO_GAIN}.")
    )
    vocabulary = model.config.target_vocab
    return Result(
        judge(unsure, partly=not better),
        verdict,
        [
            Table(
                f"Written dates to ISO after {updates} updates: {len(batch.source)} test pairs, teacher-forced",
                ("smoothing", "perplexity", "accuracy", "confidence", "confidence - accuracy", "least possible loss"),
                [(amount, *found[amount], least_loss(amount, vocabulary)) for amount in amounts],
            )
        ],
        Chart(
            "Plain training loss (without the smoothing)",
            "update",
            "nats a token",
            {f"smoothing {amount:g}": list(enumerate(curves[amount], 1)) for amount in amounts},
            log_y=True,
        ),
        ["The least possible loss is that of the smoothed targets themselves, in nats a token."],
    )


def least_loss(smoothing: float, vocabulary: int) -> float:
    """The entropy of the smoothed target distribution: `H(e)` of the formula."""
    if smoothing == 0:
        return 0.0
    share = smoothing / (vocabulary - 2)
    return -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(share)


@torch.no_grad()
def measured(model: Transformer, batch: Batch) -> Measured:
    """Perplexity, accuracy and confidence over the batch's real tokens."""
    logits = model(batch.source, batch.decoder_input, rows=batch.rows)
    labels = batch.labels.flatten()[batch.rows]
    p = logits.softmax(-1)
    right = float((p.argmax(-1) == labels).float().mean())
    confidence = float(p.amax(-1).mean())
    perplexity = float(torch.nn.functional.cross_entropy(logits, labels).exp())
    return Measured(perplexity, right, confidence, confidence - right)
