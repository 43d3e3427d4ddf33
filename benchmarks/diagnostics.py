"""What `[diagnostics]` costs: updates with a measurement, and without.

With `every = 100` one update in a hundred is measured, so training takes longer by a hundredth of what a measured
update takes longer. That hundredth is far below the noise of a shared machine; a measured update beside a plain one is
not, so these take turns, and the row of 100 updates is computed from each round's two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import torch

from benchmarks.harness import OURS, PRESETS, THREADS, Row, cost_rows, run_script, take_turns
from benchmarks.training import LABEL_SMOOTHING, RATE, shape
from clearhead.models.transformer import Transformer
from clearhead.recipe import DiagnosticsSection, TrainingSection
from clearhead.text.batches import Batch, collate
from clearhead.training.diagnostics import Diagnostics
from clearhead.training.optimizer import make_optimizer
from clearhead.training.step import compute_gradient

VOCABULARY, LENGTH = 10_000, 32
BATCH_TOKENS = (512, 4096)
"""A small batch, where a measurement weighs most, and the usual one."""
EVERY = 100


def random_batch(tokens: int) -> Batch:
    """Full rows, `tokens` of them on each side."""
    ids = torch.randint(4, VOCABULARY, (tokens // LENGTH, 2, LENGTH - 1)).tolist()
    return collate([(source, target) for source, target in ids])


def updates(preset: str, tokens: int) -> dict[str, Callable[[], None]]:
    """An update of the same model and batch, measured and not, as `Trainer` makes it: log line included."""
    options = TrainingSection(label_smoothing=LABEL_SMOOTHING)
    model = Transformer(shape(preset, VOCABULARY)).train()
    optimizer = make_optimizer(model, options)
    for group in optimizer.param_groups:
        group["lr"] = RATE
    diagnostics = Diagnostics(model, DiagnosticsSection(every=EVERY), print)
    batch = random_batch(tokens)

    def update(number: int) -> None:
        compute_gradient(model, [batch], options, torch.device("cpu"))
        with diagnostics.measuring(number, batch, clipped=1.0) as measure:
            optimizer.step()
            if measure is not None:
                json.dumps(measure().record())
        optimizer.zero_grad(set_to_none=True)

    return {OURS: lambda: update(EVERY), "not measured": lambda: update(1)}


def measure_preset(preset: str, tokens: int, rounds: int) -> list[Row]:
    """Rows of the measured update, and of a hundred updates of which one is."""
    systems = updates(preset, tokens)
    for work in systems.values():
        work()
    seconds = take_turns(systems, rounds=rounds)
    plain = seconds["not measured"]
    hundred = {
        OURS: [measured + (EVERY - 1) * other for measured, other in zip(seconds[OURS], plain, strict=True)],
        "[diagnostics] off": [EVERY * other for other in plain],
    }
    title = f"{preset}, {tokens:,} tokens"
    return [
        *cost_rows(f"update {title}, measured", seconds, unit="s"),
        *cost_rows(f"{EVERY} updates {title}, one measured", hundred, unit="s"),
    ]


def measure(quick: bool) -> Sequence[Row]:
    """Rows of every preset and batch; a quick try is one round of the small one."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    presets, rounds = (PRESETS[:1], 1) if quick else (PRESETS, 7)
    return [row for preset in presets for tokens in BATCH_TOKENS for row in measure_preset(preset, tokens, rounds)]


if __name__ == "__main__":
    run_script(measure)
