"""What is shown while training: a bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from clearhead.training.validation import Validation


@dataclass(frozen=True)
class UpdateLine:
    """Where the training stands after an update; means are over the updates since the last line of the log."""

    update: int
    total_updates: int | None
    epoch: int
    """Counted from 1."""
    loss: float
    """Smoothed, in nats per target token."""
    plain: float
    """Negative log-likelihood."""
    learning_rate: float
    gradient_norm: float
    """Before clipping."""
    tokens_per_second: float
    """Target tokens, padding not counted."""
    seconds: float
    """Since the start, over all resumed parts."""
    max_seconds: float | None
    skipped: int

    def record(self) -> dict[str, Any]:
        """What goes to the log."""
        fields = dataclasses.asdict(self)
        del fields["total_updates"], fields["max_seconds"]
        return fields

    def share_done(self) -> float:
        """How much of the training is over, from 0 to 1, by the limit that is nearer."""
        by_updates = self.update / self.total_updates if self.total_updates else 0.0
        by_time = self.seconds / self.max_seconds if self.max_seconds else 0.0
        return min(1.0, max(by_updates, by_time))

    def seconds_left(self) -> float:
        """At the speed so far."""
        return self.seconds * (1 / self.share_done() - 1) if self.share_done() else math.inf

    def __str__(self) -> str:
        total = f"/{self.total_updates:,}" if self.total_updates else ""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return (
            f"epoch {self.epoch}, update {self.update:,}{total}: loss {self.loss:.3f}, "
            f"rate {self.learning_rate:.2e}, {self.tokens_per_second:,.0f} tokens/s, "
            f"{format_seconds(self.seconds_left())} left{skipped}"
        )


class Progress(Protocol):
    """What the training tells whoever watches."""

    def message(self, text: str) -> None:
        """Something worth a line."""

    def update(self, line: UpdateLine, *, is_due: bool) -> None:
        """An update is done; `is_due` every `log_every` updates."""

    def validation(self, found: Validation, *, update: int, is_best: bool) -> None:
        """A validation is done."""

    def close(self) -> None:
        """The training is over."""


class PlainProgress:
    """Lines of text: for files, pipes and notebooks."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def message(self, text: str) -> None:
        """Print it as it is."""
        self._print(text)

    def update(self, line: UpdateLine, *, is_due: bool) -> None:
        """A line every `log_every` updates."""
        if is_due:
            self._print(str(line))

    def validation(self, found: Validation, *, update: int, is_best: bool) -> None:
        """A line, and the samples."""
        for line in validation_lines(found, update=update, is_best=is_best):
            self._print(line)

    def close(self) -> None:
        """Nothing is open."""

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class TerminalProgress:
    """A bar in the last line, redrawn; messages and validations scroll by above it."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[numbers]}"))
        self._bar = Bar(*columns, console=console, refresh_per_second=4)
        self._task = self._bar.add_task("starting", total=1.0, numbers="")

    def message(self, text: str) -> None:
        """Print it above the bar."""
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self, line: UpdateLine, *, is_due: bool) -> None:
        """Redraw the bar."""
        place, numbers = str(line).split(": ", 1)
        self._bar.start()
        self._bar.update(self._task, completed=line.share_done(), description=place, numbers=numbers)

    def validation(self, found: Validation, *, update: int, is_best: bool) -> None:
        """Print it above the bar, the best ones in bold."""
        head, *samples = validation_lines(found, update=update, is_best=is_best)
        style = "bold green" if is_best else "bold"
        self._bar.console.print(f"[{style}]{escape(head)}[/]", highlight=False, soft_wrap=True)
        for line in samples:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.stop()


def make_progress() -> Progress:
    """A bar if standard output is a terminal, else lines."""
    console = Console()
    return TerminalProgress(console) if console.is_terminal else PlainProgress(console)


def validation_lines(found: Validation, *, update: int, is_best: bool) -> list[str]:
    """A validation in words: one line, then three for each sample."""
    value = "" if found.metric == "loss" else f", {found.metric} {found.value:.2f}"
    others = {name.replace("_", " "): number for name, number in found.others.items() if name != found.metric}
    further = "".join(f", {name} {number:.2f}" for name, number in others.items())
    best = " (best so far)" if is_best else ""
    head = f"validation at update {update:,}: loss {found.loss:.3f}{value}{further}{best}, {found.seconds:.1f} s"
    rows = ((sample.source, sample.output, sample.reference) for sample in found.samples)
    names = ("source", "output", "wanted")
    return [head, *(f"  {name}  {_one_line(text)}" for row in rows for name, text in zip(names, row, strict=True))]


def format_seconds(seconds: float) -> str:
    """`42 s`, `3:05 min`, `2:07 h`."""
    if math.isinf(seconds):
        return "?"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min"
    return f"{minutes // 60}:{minutes % 60:02} h"


def _one_line(text: str) -> str:
    """A text that can't disturb the terminal, cut to a readable length."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown if len(shown) <= 200 else f"{shown[:199]}…"
