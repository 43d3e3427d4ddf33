"""Learning to fill gaps: the objective of BERT (Devlin et al., 2019), without its second one (next sentence)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.decoding.translator import evaluating
from clearhead.models.bert import BERT
from clearhead.recipe import Recipe
from clearhead.text.masking import Masking
from clearhead.text.packing import Block, BlockPlan, PackedBatch, pack
from clearhead.training.glance import Glance, glance_at_blocks
from clearhead.training.predictions import Predictions, predict_masked
from clearhead.training.randomness import preserved_randomness
from clearhead.training.text_data import BlockEpoch, TextData, control_ids, spread
from clearhead.training.validation import Sample, Validation, measure_predictions, perplexity

MASKING_STREAM = 1
"""Keeps the random numbers of masks apart from those that choose documents."""
SHOWN = 40
"""Tokens of a block that are shown in a sample."""


class MaskedToken:
    """The objective: the chosen tokens of a document, given all that is shown of it.

    Which are chosen, and how they are shown, follows from the seed, the epoch and the place in it alone.
    """

    def __init__(self, data: TextData, recipe: Recipe, config: ModelConfig, device: torch.device) -> None:
        self.data = data
        self.config = config
        self._options, self._seed, self._block_length = recipe.training, recipe.run.seed, recipe.data.block_length
        self._device = device
        mask = data.tokenizer.control.mask
        assert mask is not None  # `prepare_text_data` asks for it
        self.masking = Masking(mask, data.tokenizer.vocab_size, control_ids(data.tokenizer))

    def epoch(self, number: int) -> BlockEpoch:
        """The documents, packed into blocks, with other gaps in each epoch."""
        plan = BlockPlan(self.data.train, block_length=self._block_length, seed=self._seed, epoch=number)
        return BlockEpoch(plan, self._options.batch_tokens, self._batch_maker(self._seed, number))

    def predict(self, model: BERT, batch: PackedBatch) -> Predictions:
        """The chosen tokens of a batch."""
        return predict_masked(model, batch)

    def glance(self, batch: PackedBatch) -> Glance:
        """A few blocks."""
        return glance_at_blocks(batch)

    def validate(self, model: nn.Module, check_stop: Callable[[], None]) -> Validation:
        """Loss and accuracy at the gaps of the validation documents, the same gaps each time; and some of them."""
        began = time.monotonic()
        epoch = self._validation_epoch()
        batches = (epoch.batch(number) for number in range(len(epoch)))
        with evaluating(model), preserved_randomness(), torch.no_grad():
            found = measure_predictions(model, batches, predict_masked, self._options, self._device, check_stop)
            samples = self._samples(model, epoch)
        metric = self._options.metric
        value = found.accuracy if metric == "masked_accuracy" else found.loss
        others = {"perplexity": perplexity(found.loss), "masked_accuracy": found.accuracy}
        return Validation(found.loss, metric, value, samples, time.monotonic() - began, others)

    def _validation_epoch(self) -> BlockEpoch:
        plan = BlockPlan(self.data.valid, block_length=self._block_length, seed=0, epoch=0, shuffle=False)
        return BlockEpoch(plan, self._options.batch_tokens, self._batch_maker(0, 0))

    def _batch_maker(self, seed: int, epoch: int) -> Callable[[list[Block], list[int]], PackedBatch]:
        """Blocks with gaps, drawn for each block by its number."""

        def make(blocks: list[Block], numbers: list[int]) -> PackedBatch:
            masked = [
                self.masking.apply(block.ids, np.random.default_rng([seed, epoch, number, MASKING_STREAM]))
                for block, number in zip(blocks, numbers, strict=True)
            ]
            return pack(blocks, [one.shown for one in masked], [one.wanted for one in masked])

        return make

    def _samples(self, model: Any, epoch: BlockEpoch) -> list[Sample]:
        """Beginnings of blocks with their gaps, what the model puts there, and what was there."""
        if not self._options.samples:
            return []
        batch = epoch.batch(0).to(self._device)
        states, projection, labels = self.predict(model, batch)
        guesses, tokens = projection(states).argmax(-1), self.data.tokenizer.tokens
        samples, shown_length = [], min(SHOWN, batch.ids.size(1))
        for block in spread(batch.ids.size(0), self._options.samples):
            first = block * batch.ids.size(1)
            here = (batch.rows >= first) & (batch.rows < first + shown_length)
            shown = tokens(batch.ids[block, :shown_length].tolist())
            for place in (batch.rows[here] - first).tolist():
                shown[place] = f"[{shown[place].strip('[]')}]"  # what is asked, seen or not
            found, wanted = tokens(guesses[here].tolist()), tokens(labels[here].tolist())
            samples.append(Sample(" ".join(shown), "  ".join(found), "  ".join(wanted)))
        return samples
