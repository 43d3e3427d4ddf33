"""The endless stream of training batches, and the place in it that a checkpoint keeps."""

from __future__ import annotations

from clearhead.text.batches import Batch, BatchPlan, make_batch, plan_batches
from clearhead.text.corpus import Corpus


class BatchStream:
    """One epoch's plan of batches after the other. `epoch` and `batch` are the place of the next batch.

    A plan is a pure function of the corpus, the budget, the seed and the epoch, so these two numbers are all that a
    resumed run needs to go on with the very next batch.
    """

    def __init__(self, corpus: Corpus, *, batch_tokens: int, seed: int, epoch: int = 0, batch: int = 0) -> None:
        self._corpus = corpus
        self._batch_tokens = batch_tokens
        self._seed = seed
        self.epoch = epoch
        self.batch = batch
        self.plan = self._make_plan()

    def next(self) -> Batch:
        """The next batch; behind an epoch's last comes the next one's first."""
        while self.batch >= len(self.plan):
            self.epoch, self.batch = self.epoch + 1, 0
            self.plan = self._make_plan()
        self.batch += 1
        return make_batch(self._corpus, self.plan[self.batch - 1])

    def largest(self) -> Batch:
        """The batch of the current epoch that needs the most memory; takes nothing from the stream."""
        return make_batch(self._corpus, self.plan[self.plan.largest])

    def _make_plan(self) -> BatchPlan:
        return plan_batches(self._corpus, batch_tokens=self._batch_tokens, seed=self._seed, epoch=self.epoch)
