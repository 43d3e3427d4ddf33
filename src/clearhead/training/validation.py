"""Validation: the loss on all validation pairs, and, if the metric asks for it, a translation of some of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.translator import Translator, evaluating
from clearhead.evaluation.metrics import evaluate_outputs
from clearhead.models.transformer import Transformer
from clearhead.recipe import LOWER_IS_BETTER, Metric, Recipe, TrainingSection
from clearhead.text.batches import batches, plan_batches
from clearhead.text.corpus import Corpus
from clearhead.training.data import TrainingData
from clearhead.training.loss import plain_loss
from clearhead.training.randomness import preserved_randomness
from clearhead.training.step import autocast

SENTENCES_AT_A_TIME = 64


class Sample(NamedTuple):
    """One validation sentence as the model now translates it."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Validation:
    """What one validation found."""

    loss: float
    """Negative log-likelihood, without smoothing, in nats per target token (the end token is one)."""
    metric: Metric
    value: float
    """Of the metric, in percent; the loss if that is the metric."""
    samples: list[Sample]
    seconds: float

    def record(self) -> dict[str, Any]:
        """What goes to the log."""
        perplexity = math.exp(self.loss) if self.loss < 700 else math.inf
        values = {"loss": self.loss, "perplexity": perplexity, self.metric: self.value, "seconds": self.seconds}
        # JSON has neither infinity nor NaN
        return {key: value if math.isfinite(value) else None for key, value in values.items()}


class Validator:
    """Validates a model on a run's validation pairs; leaves no trace in the model, its mode or the random numbers."""

    def __init__(self, data: TrainingData, recipe: Recipe, device: torch.device) -> None:
        self._data = data
        self._options = recipe.training
        self._decoding = DecodingOptions(**{**recipe.decoding.model_dump(), "beam_size": 1})
        self._device = device

    def validate(self, model: Transformer, check_stop: Callable[[], None]) -> Validation:
        """Measure the model. `check_stop` is called now and then, and may raise to break off."""
        began = time.monotonic()
        with evaluating(model), preserved_randomness(), torch.no_grad():
            loss = corpus_loss(model, self._data.valid, self._options, self._device, check_stop)
            texts, metric = self._data.valid_texts, self._options.metric
            count = self._options.samples if metric == "loss" else len(texts.sources)
            outputs = self._translate(model, texts.sources[:count], check_stop)
        value = loss
        if metric != "loss":
            separator = self._data.target_tokenizer.separator
            scores = evaluate_outputs(outputs, texts.references, metrics={metric}, separator=separator)
            value = getattr(scores, metric)
        shown = zip(texts.sources, outputs, texts.references, strict=False)
        samples = [Sample(source, output, references[0]) for source, output, references in shown]
        return Validation(loss, metric, value, samples[: self._options.samples], time.monotonic() - began)

    def _translate(self, model: Transformer, sources: list[str], check_stop: Callable[[], None]) -> list[str]:
        translator = Translator(model, self._data.source_tokenizer, self._data.target_tokenizer, self._decoding)
        outputs: list[str] = []
        for start in range(0, len(sources), SENTENCES_AT_A_TIME):
            check_stop()
            outputs += translator.translate(sources[start : start + SENTENCES_AT_A_TIME])
        return outputs


def corpus_loss(
    model: Transformer,
    corpus: Corpus,
    options: TrainingSection,
    device: torch.device,
    check_stop: Callable[[], None],
) -> float:
    """The model's plain loss on a corpus, in nats per target token."""
    plan = plan_batches(corpus, batch_tokens=options.batch_tokens, seed=0, epoch=0, shuffle=False)
    total = torch.zeros((), dtype=torch.float64, device=device)
    tokens = 0
    for batch in batches(corpus, plan):
        check_stop()
        on_device = batch.to(device)
        with autocast(options, device):
            logits = model(on_device.source, on_device.decoder_input, rows=on_device.rows)
        total += plain_loss(logits, on_device.labels.flatten()[on_device.rows])
        tokens += batch.target_tokens
    return total.item() / tokens


def is_better(metric: Metric, value: float, best: float | None) -> bool:
    """Whether a value is the best so far: lower for losses and error rates, higher for the others.

    A tie is no improvement, and neither is a value that is not finite.
    """
    if not math.isfinite(value):
        return False
    if best is None:
        return True
    return value < best if metric in LOWER_IS_BETTER else value > best
