"""Learning to say what comes next: the objective of GPT and LLaMA (Radford et al., 2018)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.decoding.generation import generate
from clearhead.decoding.generation_options import GenerationOptions
from clearhead.decoding.translator import evaluating
from clearhead.models.gpt import GPT
from clearhead.recipe import Recipe
from clearhead.text.document_corpus import DocumentCorpus
from clearhead.text.packing import Block, BlockPlan, PackedBatch, pack
from clearhead.training.glance import Glance, glance_at_blocks
from clearhead.training.predictions import Predictions, predict_next
from clearhead.training.randomness import preserved_randomness
from clearhead.training.text_data import BlockEpoch, TextData, spread
from clearhead.training.validation import Found, Sample, Validation, measure_predictions, perplexity

PROMPT, CONTINUATION, SHORTEST = 16, 24, 8
"""Tokens of a validation document that are given in a sample (of a short one half), that are asked for, and that it has
to have at least."""


class NextToken:
    """The objective: every token of a document, given those before it."""

    def __init__(self, data: TextData, recipe: Recipe, config: ModelConfig, device: torch.device) -> None:
        self.data = data
        self.config = config
        self._options, self._seed, self._block_length = recipe.training, recipe.run.seed, recipe.data.block_length
        self._device = device

    def epoch(self, number: int) -> BlockEpoch:
        """The documents, packed into blocks."""
        plan = BlockPlan(self.data.train, block_length=self._block_length, seed=self._seed, epoch=number)
        return BlockEpoch(plan, self._options.batch_tokens, next_token_batch)

    def predict(self, model: GPT, batch: PackedBatch) -> Predictions:
        """The next token everywhere in a batch."""
        return predict_next(model, batch)

    def glance(self, batch: PackedBatch) -> Glance:
        """A few blocks."""
        return glance_at_blocks(batch)

    def validate(self, model: nn.Module, check_stop: Callable[[], None]) -> Validation:
        """The loss on all validation documents, in blocks as in training; and how the model goes on with some."""
        began = time.monotonic()
        with evaluating(model), preserved_randomness(), torch.no_grad():
            found = self.measure(model, self.data.valid, check_stop)
            samples = self._samples(model)
        others = {"perplexity": perplexity(found.loss)}
        return Validation(found.loss, "loss", found.loss, samples, time.monotonic() - began, others)

    def measure(self, model: nn.Module, corpus: DocumentCorpus, check_stop: Callable[[], None] = lambda: None) -> Found:
        """The loss on documents in blocks, and how often the next token is the likeliest. The model is in eval mode."""
        plan = BlockPlan(corpus, block_length=self._block_length, seed=0, epoch=0, shuffle=False)
        epoch = BlockEpoch(plan, self._options.batch_tokens, next_token_batch)
        batches = (epoch.batch(number) for number in range(len(epoch)))
        return measure_predictions(model, batches, predict_next, self._options, self._device, check_stop)

    def _samples(self, model: Any) -> list[Sample]:
        """Beginnings of documents, what the model makes of them, and what follows in truth."""
        documents = self.data.valid
        enough = (documents.lengths >= SHORTEST).nonzero()[0]
        chosen = [documents.document(int(enough[place])) for place in spread(len(enough), self._options.samples)]
        if not chosen:
            return []
        decode, options = self.data.tokenizer.decode, GenerationOptions(max_new_tokens=CONTINUATION)
        prompts = [ids[: min(PROMPT, len(ids) // 2)].tolist() for ids in chosen]
        found = generate(model, prompts, options, end=self.data.tokenizer.control.end)
        return [
            Sample(decode(prompt), decode(one.ids), decode(ids[len(prompt) : len(prompt) + CONTINUATION].tolist()))
            for prompt, one, ids in zip(prompts, found, chosen, strict=True)
        ]


def next_token_batch(blocks: list[Block], numbers: list[int]) -> PackedBatch:
    """Blocks side by side; each token is to say the one behind it."""
    return pack(blocks, [block.ids for block in blocks], [block.following for block in blocks])
