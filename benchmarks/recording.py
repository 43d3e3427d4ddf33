"""What looking costs: training steps with recording off, on, and with an attention that can't be recorded at all.

The batches are small, so that a fixed cost for each attention would show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import clearhead
from benchmarks.harness import OURS, THREADS, Row, cost_rows, run_script, take_turns
from benchmarks.training import shape
from clearhead.models.transformer import Transformer
from clearhead.parts.attention import Mask, MultiHeadAttention, ScaledDotProductAttention, fused_attention
from clearhead.recipe import TrainingSection
from clearhead.text.batches import collate
from clearhead.training.step import compute_gradient

VOCABULARY, SENTENCES, LENGTH = 1_000, 16, 32
STEPS = 10
"""In a round."""


class BlindAttention(ScaledDotProductAttention):
    """The same without the question whether somebody is looking."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask = None, *, causal: bool = False) -> Tensor:
        """The fused kernel alone."""
        dropout_p = self.dropout if self.training else 0.0
        return fused_attention(query, key, value, mask, causal=causal, dropout_p=dropout_p)


def blinded(model: Transformer) -> Transformer:
    """The model with all its attentions exchanged."""
    for module in list(model.modules()):
        if isinstance(module, MultiHeadAttention):
            module.attention = BlindAttention(dropout=module.attention.dropout)
    return model.train()


def measure(quick: bool) -> Sequence[Row]:
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    options = TrainingSection(label_smoothing=0.1)
    ids = torch.randint(4, VOCABULARY, (SENTENCES, 2, LENGTH)).tolist()
    batch = collate([(source, target) for source, target in ids])
    config = shape("tiny", VOCABULARY)

    def steps(model: Transformer) -> Callable[[], None]:
        def run() -> None:
            for _ in range(STEPS):
                compute_gradient(model, [batch], options, torch.device("cpu"))

        return run

    seeing, blind = Transformer(config).train(), blinded(Transformer(config))

    def recorded() -> None:
        with clearhead.record_attention(seeing):
            steps(seeing)()

    systems = {OURS: steps(seeing), "without the question": steps(blind), "recording": recorded}
    for work in systems.values():
        work()
    seconds = take_turns(systems, rounds=1 if quick else 15)
    off = {name: [s / STEPS for s in seconds[name]] for name in (OURS, "without the question")}
    on = {OURS: [s / STEPS for s in seconds["recording"]], "recording off": off[OURS]}
    title = f"gradient tiny, {SENTENCES} × {LENGTH} tokens"
    return [*cost_rows(f"{title}, recording off", off, unit="s"), *cost_rows(f"{title}, recording", on, unit="s")]


if __name__ == "__main__":
    run_script(measure)
