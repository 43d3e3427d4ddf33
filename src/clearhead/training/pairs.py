"""Learning to give a target for a source: the paper's own objective (section 5)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.translator import Translator, evaluating
from clearhead.evaluation.metrics import evaluate_outputs
from clearhead.models.transformer import Transformer
from clearhead.recipe import Recipe
from clearhead.text.batches import Batch, BatchPlan, make_batch, plan_batches
from clearhead.text.corpus import Corpus
from clearhead.training.data import TrainingData
from clearhead.training.glance import Glance, glance_at_pairs
from clearhead.training.predictions import Predictions, predict_target
from clearhead.training.randomness import preserved_randomness
from clearhead.training.validation import Sample, Validation, measure_predictions

SENTENCES_AT_A_TIME = 64


class PairEpoch:
    """The batches of an epoch of pairs."""

    def __init__(self, corpus: Corpus, plan: BatchPlan) -> None:
        self._corpus, self._plan = corpus, plan
        self.largest = plan.largest

    def __len__(self) -> int:
        return len(self._plan)

    def batch(self, number: int) -> Batch:
        """The tensors of one batch."""
        return make_batch(self._corpus, self._plan[number])


class TargetOfSource:
    """The objective: every token of the target, given the source and the target so far."""

    def __init__(self, data: TrainingData, recipe: Recipe, config: ModelConfig, device: torch.device) -> None:
        self.data = data
        self.config = config
        self._options, self._seed = recipe.training, recipe.run.seed
        self._decoding = DecodingOptions(**{**recipe.decoding.model_dump(), "beam_size": 1})
        self._device = device

    def epoch(self, number: int) -> PairEpoch:
        """The pairs in batches of like lengths."""
        budget, corpus = self._options.batch_tokens, self.data.train
        return PairEpoch(corpus, plan_batches(corpus, batch_tokens=budget, seed=self._seed, epoch=number))

    def predict(self, model: Transformer, batch: Batch) -> Predictions:
        """The targets of a batch."""
        return predict_target(model, batch)

    def glance(self, batch: Batch) -> Glance:
        """A few pairs."""
        return glance_at_pairs(batch)

    def validate(self, model: nn.Module, check_stop: Callable[[], None]) -> Validation:
        """The loss on all validation pairs, and, if the metric asks for it, a translation of some of them."""
        began = time.monotonic()
        with evaluating(model), preserved_randomness(), torch.no_grad():
            loss = self.loss_on(model, self.data.valid, check_stop)
            texts, metric = self.data.valid_texts, self._options.metric
            count = self._options.samples if metric == "loss" else len(texts.sources)
            outputs = self._translate(model, texts.sources[:count], check_stop)
        value = loss
        if metric != "loss":
            separator = self.data.target_tokenizer.separator
            scores = evaluate_outputs(outputs, texts.references, metrics={metric}, separator=separator)
            value = getattr(scores, metric)
        shown = zip(texts.sources, outputs, texts.references, strict=False)
        samples = [Sample(source, output, references[0]) for source, output, references in shown]
        return Validation(loss, metric, value, samples[: self._options.samples], time.monotonic() - began)

    def loss_on(self, model: nn.Module, corpus: Corpus, check_stop: Callable[[], None]) -> float:
        """The model's plain loss on pairs, in nats per target token."""
        plan = plan_batches(corpus, batch_tokens=self._options.batch_tokens, seed=0, epoch=0, shuffle=False)
        batches = (make_batch(corpus, plan[number]) for number in range(len(plan)))
        return measure_predictions(model, batches, predict_target, self._options, self._device, check_stop).loss

    def _translate(self, model: Any, sources: list[str], check_stop: Callable[[], None]) -> list[str]:
        translator = Translator(model, self.data.source_tokenizer, self.data.target_tokenizer, self._decoding)
        outputs: list[str] = []
        for start in range(0, len(sources), SENTENCES_AT_A_TIME):
            check_stop()
            outputs += translator.translate(sources[start : start + SENTENCES_AT_A_TIME])
        return outputs
