"""The training loop.

One turn of the loop is one update; between two turns the state is whole, and only there is anything validated, saved or
stopped. `Trainer.run` is the loop and `Trainer._update` an update; the rest says when, and where to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from clearhead.errors import RunError
from clearhead.models.making import AnyModel, stacks_of
from clearhead.recipe import Recipe
from clearhead.run_folder import RunFolder
from clearhead.training.checkpoints import Checkpoints, save_weights_atomically
from clearhead.training.diagnostics import Diagnostics, Reading
from clearhead.training.metrics_log import MetricsLog
from clearhead.training.objective import Objective
from clearhead.training.optimizer import make_optimizer
from clearhead.training.progress import Progress, UpdateLine
from clearhead.training.randomness import preserved_randomness
from clearhead.training.schedules import learning_rate
from clearhead.training.state import TrainingState, Window
from clearhead.training.step import GradientSums, add_gradient, compute_gradient
from clearhead.training.stopping import StopRequested, StopSignals
from clearhead.training.stream import BatchStream
from clearhead.training.validation import Validation, is_better


class Trainer:
    """A model in training. In this order: `resume` if wanted, `try_largest_batch`, `run`."""

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        objective: Objective,
        model: AnyModel,
        *,
        device: torch.device,
        progress: Progress,
        stop: StopSignals,
    ) -> None:
        self.options = recipe.training
        self.folder = folder
        self.model = model
        self.state = TrainingState(batch_tokens=self.options.batch_tokens)
        self.checkpoints = Checkpoints(folder.checkpoints)
        self.optimizer = make_optimizer(model, self.options)
        self.objective = objective
        self._stream = self._make_stream()
        self.total_updates = self.options.total_updates(len(self._stream.plan))
        self._device = device
        self._progress = progress
        self.stop = stop
        self.diagnostics = Diagnostics(model, recipe.diagnostics, progress.message, objective.glance)
        self._saved_at: int | None = None
        self._clock = time.monotonic()
        if self.options.compile:
            for stack in stacks_of(model).values():
                stack.compile(dynamic=True)

    def _make_stream(self) -> BatchStream:
        return BatchStream(self.objective.epoch, epoch=self.state.epoch, batch=self.state.batch)

    # ---- beginning -------------------------------------------------------------------------------------------------

    def resume(self) -> bool:
        """Put the newest whole checkpoint in place; `False` if there is none yet."""
        state = self.checkpoints.load_newest(self.model, self.optimizer, self._progress.message)
        if state is None:
            return False
        if state.batch_tokens != self.options.batch_tokens:
            self._progress.message(
                f"training.batch_tokens is now {self.options.batch_tokens}, it was {state.batch_tokens}: "
                f"other batches, so epoch {state.epoch + 1} ends here and the next one begins"
            )
            state.epoch, state.batch, state.batch_tokens = state.epoch + 1, 0, self.options.batch_tokens
        self.state = state
        self._stream = self._make_stream()
        self._saved_at = state.update
        self.checkpoints.delete_after(state.update)
        return True

    def try_largest_batch(self) -> None:
        """Run the largest batch forward and backward, so that too little memory shows now and not in hours.

        It leaves no gradients, and the random numbers where they were. Raises `RunError`.
        """
        batch = self._stream.largest()
        with preserved_randomness():
            divisor = max(1, batch.target_tokens)
            add_gradient(self.model, batch, self.options, self._device, divisor=divisor, predict=self.objective.predict)
        self.optimizer.zero_grad(set_to_none=True)

    # ---- the loop --------------------------------------------------------------------------------------------------

    def run(self, log: MetricsLog) -> str:
        """Train until a limit is reached; returns which. After a signal: saves, and raises `StopRequested`."""
        self._clock = time.monotonic()
        self.model.train()
        try:
            while True:
                if self._is_due(self.options.validate_every) and self.state.validated_at != self.state.update:
                    self.validate(log)  # or again, after resuming, if a signal broke it off
                if reason := self.reason_to_end():
                    self._save(log, must=True)
                    return reason
                if self._is_due(self.options.save_every or self.options.validate_every):
                    self._save(log)
                self.stop.check()
                self._update(log)
        except StopRequested:
            self._save(log, must=True)
            raise

    def reason_to_end(self) -> str | None:
        """Which limit is reached, if any."""
        state, options = self.state, self.options
        if self.total_updates is not None and state.update >= self.total_updates:
            return f"all {self.total_updates:,} updates are done"
        if options.max_minutes is not None and self._seconds() >= 60 * options.max_minutes:
            return f"training.max_minutes = {options.max_minutes:g} are over"
        if options.patience is not None and state.stale >= options.patience:
            return f"no better {options.metric} in {state.stale} validations (training.patience)"
        return None

    def _is_due(self, every: int) -> bool:
        return self.state.update > 0 and self.state.update % every == 0

    def _seconds(self) -> float:
        """The time in the loop so far, over all resumed parts."""
        now = time.monotonic()
        self.state.seconds += now - self._clock
        self._clock = now
        return self.state.seconds

    # ---- an update -------------------------------------------------------------------------------------------------

    def _update(self, log: MetricsLog) -> None:
        """One update of the weights from `accumulate` batches; skipped if its gradient is not finite."""
        began = time.monotonic()
        state = self.state
        batches = [self._stream.next() for _ in range(self.options.accumulate)]
        sums = compute_gradient(self.model, batches, self.options, self._device, self.objective.predict)
        reading = self._step(batches[0], sums) if sums.is_finite() else None
        self.optimizer.zero_grad(set_to_none=True)
        state.epoch, state.batch = self._stream.epoch, self._stream.batch
        if not sums.is_finite():
            self._skip(sums)
            return
        state.update += 1
        state.target_tokens += sums.tokens
        state.skipped_in_a_row = 0
        seconds = time.monotonic() - began
        state.update_seconds += seconds
        state.window.add(loss=sums.loss, plain=sums.plain, norm=sums.norm, tokens=sums.tokens, seconds=seconds)
        self._note_update(log)
        if reading is not None:
            log.write({"event": "diagnostics", "update": state.update, **reading.record()})

    def _step(self, batch: Any, sums: GradientSums) -> Reading | None:
        """Move the weights along the gradient; and say what that did where `[diagnostics]` asks for it."""
        update, limit = self.state.update + 1, self.options.clip_norm
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate_of(update)
        clipped = min(1.0, limit / (sums.norm + 1e-6)) if limit else 1.0
        with self.diagnostics.measuring(update, batch, clipped) as measure:
            self.optimizer.step()
            return None if measure is None else measure()

    def rate_of(self, update: int) -> float:
        """The learning rate of an update, counted from 1."""
        return learning_rate(
            self.options.schedule,
            update,
            peak=self.options.peak_rate,
            warmup=self.options.warmup,
            total=self.total_updates,
            floor=self.options.floor_rate,
            d_model=self.model.config.d_model,
        )

    def _skip(self, sums: GradientSums) -> None:
        """Count an update that can't be applied; neither update nor schedule moves. Too many in a row: `RunError`."""
        state = self.state
        state.skipped += 1
        state.skipped_in_a_row += 1
        found = f"update {state.update + 1}: loss {sums.loss:g}, gradient norm {sums.norm:g}"
        if state.skipped_in_a_row >= self.options.max_skipped:
            raise RunError(
                f"{state.skipped_in_a_row} updates in a row had no finite gradient ({found}). The last checkpoint is "
                f"from before. Lower training.peak_rate (now {self.options.peak_rate:g}) or raise training.warmup (now "
                f"{self.options.warmup}), and go on with --resume"
            )
        self._progress.message(f"skipped {found}")

    def _note_update(self, log: MetricsLog) -> None:
        """Show the update, and write what happened since the last line of the log when the next is due."""
        state, window = self.state, self.state.window
        line = UpdateLine(
            update=state.update,
            total_updates=self.total_updates,
            epoch=state.epoch + 1,
            loss=window.loss / window.tokens,
            plain=window.plain / window.tokens,
            learning_rate=self.rate_of(state.update),
            gradient_norm=window.norm / window.updates,
            tokens_per_second=window.tokens / max(window.seconds, 1e-9),
            seconds=self._seconds(),
            max_seconds=None if self.options.max_minutes is None else 60 * self.options.max_minutes,
            skipped=state.skipped,
        )
        is_due = self._is_due(self.options.log_every)
        self._progress.update(line, is_due=is_due)
        if is_due:
            log.write({"event": "training", **line.record()})
            state.window = Window()

    # ---- validating and saving -------------------------------------------------------------------------------------

    def validate(self, log: MetricsLog) -> Validation:
        """Validate the weights, keep them, and make them the model to use if they are the best so far."""
        self._require_finite_weights()
        found = self.objective.validate(self.model, self.stop.check)
        state, options = self.state, self.options
        is_best = is_better(options.metric, found.value, state.best_value)
        if is_best:
            state.best_value, state.best_update, state.stale = found.value, state.update, 0
        else:
            state.stale += 1
        state.validated_at = state.update
        if options.average:
            state.snapshots = [*state.snapshots, state.update][-options.average :]
        if is_best or options.average:
            self._try_to_write(lambda: self.checkpoints.save_weights(self.model, state.update))
        if is_best:
            self._try_to_write(lambda: save_weights_atomically(self.model, self.folder.model))
        log.write({"event": "validation", "update": state.update, **found.record(), "is_best": is_best})
        self._progress.validation(found, update=state.update, is_best=is_best)
        return found

    def _save(self, log: MetricsLog, *, must: bool = False) -> None:
        """Write a checkpoint, unless this update has one, and delete what it makes superfluous."""
        state = self.state
        if self._saved_at == state.update:
            return
        self._require_finite_weights()
        self._seconds()
        state.log_lines = log.lines
        if self._try_to_write(lambda: self.checkpoints.save(self.model, self.optimizer, state), must=must):
            self._saved_at = state.update
            self.checkpoints.prune(keep=self.options.keep, keep_weights=[state.best_update, *state.snapshots])

    def _try_to_write(self, write: Callable[[], None], *, must: bool = False) -> bool:
        """Whether it was written. A full disk is no reason to end, unless this `must` be written: what was there before
        is still there, and the next attempt may succeed."""
        try:
            write()
        except OSError as error:
            saved = self.checkpoints.updates()
            kept = f"the checkpoint of update {saved[-1]} is kept" if saved else "there is no checkpoint yet"
            message = f"update {self.state.update} can't be saved: {error.strerror or error}; {kept}"
            if must:
                raise RunError(f"{message}. Make room, then go on with --resume") from None
            self._progress.message(message)
            return False
        return True

    def _require_finite_weights(self) -> None:
        """Weights that are no numbers are never saved over good ones."""
        for name, parameter in self.model.named_parameters():
            if not parameter.isfinite().all():
                raise RunError(
                    f"{name} is no longer finite at update {self.state.update}; the last checkpoint is from before. "
                    f"Lower training.peak_rate (now {self.options.peak_rate:g}), and go on with --resume"
                )
