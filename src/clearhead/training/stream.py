"""The endless stream of training batches, and the place in it that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clearhead.training.objective import Epoch


class BatchStream:
    """One epoch's batches after the other's. `epoch` and `batch` are the place of the next batch.

    What is in an epoch is a pure function of its number (`Objective.epoch`), so these two numbers are all that a
    resumed run needs to go on with the very next batch.
    """

    def __init__(self, make_epoch: Callable[[int], Epoch], *, epoch: int = 0, batch: int = 0) -> None:
        self._make_epoch = make_epoch
        self.epoch = epoch
        self.batch = batch
        self.plan = make_epoch(epoch)

    def next(self) -> Any:
        """The next batch; behind an epoch's last comes the next one's first."""
        while self.batch >= len(self.plan):
            self.epoch, self.batch = self.epoch + 1, 0
            self.plan = self._make_epoch(self.epoch)
        self.batch += 1
        return self.plan.batch(self.batch - 1)

    def largest(self) -> Any:
        """The batch of the current epoch that needs the most memory; takes nothing from the stream."""
        return self.plan.batch(self.plan.largest)
