"""What residual connections do for deep stacks, and where the norm goes (section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from clearhead.experiments.learning import (
    Examples,
    Tagger,
    glorot,
    options,
    random_letters,
    seeded,
    small_shape,
    train_tagger,
)
from clearhead.experiments.result import Chart, Effort, Result, Table, judge
from clearhead.parts.layers import AddAndNorm, Encoder

TITLE = "residual connections keep the gradient through depth; post-norm and pre-norm"
CLAIM = (
    "Deep networks lose gradients; the identity path of residual connections keeps them; post-norm balances flow and "
    "stability."
)
FORMULA = """post-norm: LayerNorm(x + Dropout(Sublayer(x)))          as published
pre-norm:  x + Dropout(Sublayer(LayerNorm(x)))          as most use today
norm only: LayerNorm(Dropout(Sublayer(x)))              the residual taken out
neither:   Dropout(Sublayer(x))                         the norm too"""

KINDS = ("neither", "norm only", "post", "pre")
WIDTH, LETTERS, TOKENS = 32, 8, 12


class NormAlone(AddAndNorm):
    """Add & Norm without the Add."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Only the sublayer and its norm."""
        return self.norm(self.dropout(sublayer(x)))


class Neither(AddAndNorm):
    """Nothing around the sublayer."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Only the sublayer."""
        return self.dropout(sublayer(x))


WITHOUT_RESIDUAL: dict[str, type[AddAndNorm]] = {"neither": Neither, "norm only": NormAlone}


def measure(effort: Effort, seed: int) -> Result:
    """The gradient at each layer of a new encoder, and short trainings of a deep one."""
    depths = effort.of([2, 24], [2, 6, 12, 24, 48], [2, 4, 6, 12, 24, 48, 96])
    norms = {kind: {depth: gradient_by_layer(kind, depth) for depth in depths} for kind in KINDS}
    kept = {kind: {depth: norm[0] / norm[-1] for depth, norm in norms[kind].items()} for kind in KINDS}
    depth, trained = effort.of(6, 12, 24), ("norm only", "post", "pre")
    losses = {
        (kind, warmup): final_loss(kind, depth, warmup, effort, seed) for kind in trained for warmup in (False, True)
    }
    deepest, guess = depths[-1], math.log(LETTERS)
    learns = {kind: min(losses[kind, False], losses[kind, True]) for kind in trained}
    holds = kept["neither"][deepest] < 1e-3 < 0.1 < kept["pre"][deepest] and learns["pre"] < 0.8 * learns["norm only"]
    verdict = (
        f"Through {deepest} layers {kept['neither'][deepest]:.0e} times the last layer's gradient arrives at the first "
        f"without residual and norm, {kept['post'][deepest]:.2g} times with post-norm and {kept['pre'][deepest]:.2g} "
        f"times with pre-norm; with the norm alone it is {kept['norm only'][deepest]:.2g} times, but {depth} layers "
        f"of it get to a loss of {learns['norm only']:.2f} (guessing has {guess:.2f})"
        + (": a gradient that arrives is not yet one that helps. " if learns["norm only"] > 0.9 * guess else ". ")
        + f"With and without a warm-up pre-norm gets to {losses['pre', True]:.2f} and "
        f"{losses['pre', False]:.2f}, post-norm to {losses['post', True]:.2f} and {losses['post', False]:.2f}."
    )
    return Result(
        judge(holds, partly=True),
        verdict,
        [
            Table(
                "Gradient at the first layer's input over that at the last layer's, untrained",
                ("layers", *KINDS),
                [(d, *(kept[kind][d] for kind in KINDS)) for d in depths],
            ),
            Table(
                f"Training loss (nats) of {depth} layers, last tenth of the updates; guessing {guess:.2f}",
                ("around each sublayer", "without warm-up", "with warm-up"),
                [(kind, losses[kind, False], losses[kind, True]) for kind in trained],
            ),
        ],
        Chart(
            f"Gradient by layer, {deepest} layers, untrained",
            "layer",
            "norm of the gradient over the last layer's",
            {k: [(i + 1, norm / norms[k][deepest][-1]) for i, norm in enumerate(norms[k][deepest])] for k in KINDS},
            log_y=True,
        ),
    )


def make_encoder(kind: str, depth: int) -> Encoder:
    """A stack of one kind, with the Transformer's first weights."""
    position = "pre" if kind == "pre" else "post"
    config = small_shape(LETTERS, width=WIDTH, layers=depth, n_heads=2, norm_position=position)
    encoder = Encoder(config)
    if kind in WITHOUT_RESIDUAL:
        for layer in encoder.layers:
            layer.add_and_norm_1, layer.add_and_norm_2 = (WITHOUT_RESIDUAL[kind](config) for _ in range(2))
    glorot(encoder)
    return encoder


def gradient_by_layer(kind: str, depth: int) -> list[float]:
    """The norm of a random loss' gradient by the input of each layer, the first layer's first."""
    torch.manual_seed(depth)
    encoder = make_encoder(kind, depth)
    x = torch.randn(4, TOKENS, WIDTH, requires_grad=True)
    inputs = []
    for layer in encoder.layers:
        x.retain_grad()
        inputs.append(x)
        x = layer(x)
    output = encoder.norm(x)
    (output * torch.randn_like(output)).sum().backward()  # type: ignore[no-untyped-call]
    return [float(x.grad.norm()) for x in inputs if x.grad is not None]


def final_loss(kind: str, depth: int, warmup: bool, effort: Effort, seed: int) -> float:
    """Train on naming the letter before; the mean loss of the last tenth."""
    torch.manual_seed(seed)
    config = small_shape(LETTERS, width=WIDTH, layers=depth, n_heads=2)
    model, generator = Tagger(config, encoder=make_encoder(kind, depth)), seeded(seed)

    def draw() -> Examples:
        ids = random_letters(16, TOKENS, LETTERS, generator)
        return ids, nn.functional.pad(ids[:, :-1], (1, 0))

    updates = effort.of(150, 250, 1000)
    losses = train_tagger(model, draw, options(updates, 3e-3, warmup=updates // 3 if warmup else 0))
    return sum(losses[-updates // 10 :]) / len(losses[-updates // 10 :])
