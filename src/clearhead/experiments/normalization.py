"""Why sequences take layer normalisation and not batch normalisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clearhead.control_tokens import PAD
from clearhead.experiments.learning import (
    Examples,
    Tagger,
    loss_and_accuracy,
    options,
    random_letters,
    seeded,
    small_shape,
    train_tagger,
)
from clearhead.experiments.result import Chart, Effort, Result, Table, judge
from clearhead.parts.layers import AddAndNorm
from clearhead.parts.normalization import LayerNorm

TITLE = "layer norm does not look at the batch, batch norm does"
CLAIM = (
    "Batch normalisation needs large batches of one size; sentences vary in length. Layer normalisation, with the "
    "biased variance of one position's features, does not depend on the batch and is stable for any length."
)
FORMULA = "LayerNorm(x) = γ (x - mean) / √(var + ε) + β,   mean and var = Σ(x - mean)² / d_model over one position"

WIDTH, LETTERS = 32, 8


class BatchNorm(nn.Module):
    """Torch's batch normalisation over every position of the batch, padding too, as a user gets it."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, x: Tensor) -> Tensor:
        """`(b, t, m)` to the same."""
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


def measure(effort: Effort, seed: int) -> Result:
    """One sentence in batches of several sizes, and training at each of them."""
    sizes = effort.of([1, 2, 64], [1, 2, 8, 64], [1, 2, 4, 8, 16, 64])
    moved = {size: [moved_by_batch(norm(WIDTH), size) for norm in (LayerNorm, BatchNorm)] for size in sizes}
    losses = {size: [held_out_loss(kind, size, effort, seed) for kind in ("layer", "batch")] for size in sizes}
    biased = [(width, (width / (width - 1)) ** 0.5 - 1) for width in (8, 64, 512)]

    works = losses[sizes[-1]][1] < 1.5 * losses[sizes[-1]][0] + 0.1
    one, many = losses[sizes[0]], losses[sizes[-1]]
    layer_moves, batch_moves = max(m[0] for m in moved.values()), max(m[1] for m in moved.values())
    holds = layer_moves < 1e-5 < 0.01 < batch_moves and one[0] < one[1]
    verdict = (
        f"Other sentences and padding move a sentence's layer norm by at most {layer_moves:.1g} and its batch norm (in "
        f"training) by up to {batch_moves:.2f}; after training with one sentence a batch the held-out loss is "
        f"{one[0]:.2f} with layer norm and {one[1]:.2f} with batch norm, with {sizes[-1]} sentences {many[0]:.1g} and "
        f"{many[1]:.1g}"
        + (": in large batches batch norm works too." if works else ": batch norm stays behind.")
        + f" Dividing by d - 1 instead of d would change the result by {biased[-1][1]:.1%} at d_model 512."
    )
    return Result(
        judge(holds, partly=works),
        verdict,
        [
            Table(
                "How far a sentence's normalised states move when it is put into a batch with padding",
                ("sentences", "layer norm", "batch norm"),
                [(size, *moved[size]) for size in sizes],
            ),
            Table(
                "Held-out loss after training, by sentences in a batch (the same number of updates)",
                ("sentences", "layer norm", "batch norm"),
                [(size, *losses[size]) for size in sizes],
            ),
            Table("Unbiased instead of biased: change of the deviation", ("d_model", "relative change"), biased),
        ],
        Chart(
            "Training with small batches",
            "sentences in a batch",
            "held-out loss (nats)",
            {f"{kind} norm": [(size, losses[size][i]) for size in sizes] for i, kind in enumerate(("layer", "batch"))},
            log_x=True,
        ),
    )


@torch.no_grad()
def moved_by_batch(norm: nn.Module, size: int) -> float:
    """One sentence's states normalised alone, and beside `size` sentences of other lengths: the largest difference."""
    sentence = torch.randn(1, 11, WIDTH)
    others = 2 * torch.randn(size, 17, WIDTH) + 1
    batch = torch.cat([nn.functional.pad(sentence, (0, 0, 0, 6)), others])
    norm.train()
    return float((norm(batch)[:1, :11] - norm(sentence)).abs().max())


def held_out_loss(kind: str, size: int, effort: Effort, seed: int) -> float:
    """Train an encoder whose norms are of one kind, in batches of `size` sentences of 4 to 16 letters."""
    torch.manual_seed(seed)
    model = Tagger(small_shape(LETTERS, width=WIDTH, layers=2, n_heads=2))
    if kind == "batch":
        for module in model.modules():
            if isinstance(module, AddAndNorm):
                module.norm = BatchNorm(WIDTH)  # type: ignore[assignment]
        model.encoder.norm = BatchNorm(WIDTH)
    generator = seeded(seed)
    train_tagger(model, lambda: sentences(size, generator), options(effort.of(300, 500, 2000), 3e-3))
    return loss_and_accuracy(model, sentences(128, seeded(99)))[0]


def sentences(size: int, generator: torch.Generator) -> Examples:
    """Letters, right-padded; the label of each is the letter before it, that of the first is the first itself."""
    ids = random_letters(size, 16, LETTERS, generator)
    lengths = torch.randint(4, 17, (size, 1), generator=generator)
    ids[torch.arange(16) >= lengths] = PAD
    labels = torch.cat([ids[:, :1], ids[:, :-1]], 1)
    return ids, labels.masked_fill(ids == PAD, PAD)
