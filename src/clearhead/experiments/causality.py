"""What a decoder learns that sees the future: to copy it (section 3.2.3)."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor

from clearhead.control_tokens import BOS
from clearhead.experiments.learning import options, random_letters, seeded, small_shape, train_transformer
from clearhead.experiments.result import Chart, Effort, Result, Table, judge
from clearhead.models.transformer import Transformer
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.layers import DecoderLayer
from clearhead.text.batches import Batch, collate

TITLE = "a decoder that sees the future cheats"
CLAIM = "To see later target tokens is cheating: the lower triangle in the decoder's self-attention prevents it."
FORMULA = "mask[t, u] = (u ≤ t): position t sees itself and what is before it, and predicts the token t + 1"

LETTERS, LENGTH = 8, 6
Task = str
"""`reverse`: the target is the source backwards. `chance`: the target is drawn apart from it: nothing to learn."""


class LeakyAttention(MultiHeadAttention):
    """The classic mistake: the decoder's self-attention without its causal mask."""

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, *, causal: bool = False
    ) -> Tensor:
        """Every position sees every other."""
        return super().forward(x, memory, mask, causal=False)


class Learned(NamedTuple):
    """What came of a training."""

    losses: list[float]
    teacher_forced: float
    """Accuracy of each token, the right ones before it (and in a leaky decoder those behind it) being given."""
    free_running: float
    """Accuracy of each token, the decoder reading its own output."""

    @property
    def loss(self) -> float:
        """Mean training loss of the last tenth, in nats a token."""
        last = self.losses[-max(1, len(self.losses) // 10) :]
        return sum(last) / len(last)


def measure(effort: Effort, seed: int) -> Result:
    """A right and a leaky decoder, on a task that can be learned and on one that can't."""
    found = {
        (task, kind): train(task, kind == "leaky", effort, seed)
        for task in ("reverse", "chance")
        for kind in ("right", "leaky")
    }
    floor = LENGTH * math.log(LETTERS) / (LENGTH + 1)
    leaky, right = found["reverse", "leaky"], found["reverse", "right"]
    impossible = found["chance", "leaky"]
    holds = impossible.loss < 0.5 * floor <= 1.1 * found["chance", "right"].loss and (
        leaky.teacher_forced > 0.9 > leaky.free_running + 0.2
    )
    verdict = (
        f"The leaky decoder gets to a loss of {leaky.loss:.2f} and {leaky.teacher_forced:.0%} of the tokens, but "
        f"writes only {leaky.free_running:.0%} of them right on its own (guessing: {1 / LETTERS:.0%}), the right one "
        f"{right.teacher_forced:.0%} and {right.free_running:.0%}; on targets drawn by chance, where no honest model "
        f"gets below {floor:.2f} nats, the leaky one shows {impossible.loss:.2f}: a loss too good to be true is a leak."
    )
    rows = [(task, kind, f.loss, f.teacher_forced, f.free_running) for (task, kind), f in found.items()]
    return Result(
        judge(holds),
        verdict,
        [
            Table(
                f"{LENGTH} of {LETTERS} letters; least honest loss by chance {floor:.2f} nats a token",
                ("target", "decoder", "training loss", "right, teacher-forced", "right, free-running"),
                rows,
            )
        ],
        Chart(
            "Training loss",
            "update",
            "nats a token",
            {f"{task}, {kind}": list(enumerate(f.losses, 1)) for (task, kind), f in found.items()},
        ),
    )


def train(task: Task, leaky: bool, effort: Effort, seed: int) -> Learned:
    """Train a small Transformer, and let it write."""
    torch.manual_seed(seed)
    model = Transformer(small_shape(LETTERS, width=32, layers=1, n_heads=2))
    if leaky:
        for layer in cast("list[DecoderLayer]", model.decoder.layers):
            attention = LeakyAttention(32, 2)
            attention.load_state_dict(layer.self_attention.state_dict())
            layer.self_attention = attention
    generator = seeded(seed)
    updates = effort.of(150, 400, 2000)
    losses = train_transformer(model, lambda: pairs(task, 32, generator), options(updates, 4e-3))
    test = pairs(task, 128, seeded(99))
    return Learned(losses, accuracy(model(test.source, test.decoder_input).argmax(-1), test), free_running(model, test))


def pairs(task: Task, count: int, generator: torch.Generator) -> Batch:
    """Sources, and targets of the same length."""
    sources = random_letters(count, LENGTH, LETTERS, generator)
    targets = sources.flip(1) if task == "reverse" else random_letters(count, LENGTH, LETTERS, generator)
    return collate(list(zip(sources.tolist(), targets.tolist(), strict=True)))


@torch.no_grad()
def free_running(model: Transformer, batch: Batch) -> float:
    """Greedy decoding, the whole output so far being read anew for each token: that is right for a leaky model too."""
    written = torch.full((len(batch.source), 1), BOS)
    for _ in range(batch.labels.size(1)):
        written = torch.cat([written, model(batch.source, written)[:, -1:].argmax(-1)], 1)
    return accuracy(written[:, 1:], batch)


def accuracy(outputs: Tensor, batch: Batch) -> float:
    """The share of right letters, the end token not counted."""
    return float((outputs == batch.labels)[:, :LENGTH].float().mean())
