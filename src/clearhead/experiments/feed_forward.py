"""What the feed-forward network adds to attention (section 3.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clearhead.control_tokens import CONTROL_COUNT
from clearhead.experiments.learning import (
    Examples,
    Tagger,
    glorot,
    loss_and_accuracy,
    options,
    random_letters,
    seeded,
    small_shape,
    train_tagger,
)
from clearhead.experiments.result import Chart, Effort, Result, Table, judge
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.feed_forward import PositionwiseFeedForward
from clearhead.parts.layers import Encoder

TITLE = "attention alone lacks non-linear capacity"
CLAIM = (
    "Attention only averages: without the feed-forward network a stack lacks non-linearity; an inner width of usually "
    "4 d_model gives it capacity."
)
FORMULA = "FFN(x) = max(0, x W_1 + b_1) W_2 + b_2,   W_1 (d_model, d_ff), W_2 (d_ff, d_model)"

WIDTH, LETTERS = 32, 24
STACKS = ("attention", "attention, FFN", "attention, residual", "attention, FFN, residual")


class NoFeedForward(nn.Module):
    """Adds nothing to the residual."""

    def forward(self, x: Tensor) -> Tensor:
        """Zeros."""
        return torch.zeros_like(x)


def measure(effort: Effort, seed: int) -> Result:
    """How alike positions become with depth, and the loss by inner width on a table that isn't linear."""
    depths = effort.of([1, 8], [1, 2, 4, 8, 16], [1, 2, 4, 8, 16, 32])
    spread = {name: spread_by_depth(name, depths) for name in STACKS}
    factors = effort.of([0, 4], [0, 1, 4, 16], [0, 1, 2, 4, 8, 16])
    trained = {factor: table_loss(factor, effort, seed) for factor in factors}

    deep = depths[-1]
    alone, with_ffn, with_residual = (spread[name][deep] for name in STACKS[:3])
    none, four = trained[0], trained[4]
    holds = four[0] < 0.8 * none[0] and alone < 0.01
    best = min(factors, key=lambda factor: trained[factor][0])
    verdict = (
        f"On a random table of letter pairs the held-out loss is {none[0]:.2f} ({none[1]:.1%} right) without a "
        f"feed-forward network and {four[0]:.2f} ({four[1]:.1%}) with d_ff = 4 d_model, the least with {best} d_model; "
        f"after {deep} layers of pure attention {alone:.0e} of the difference between positions is left, with "
        f"feed-forward networks {with_ffn:.0e} and with residuals alone {with_residual:.2f}: against this collapse it "
        "is the residual that helps most, not the feed-forward network."
    )
    return Result(
        judge(holds, partly=with_residual > with_ffn),
        verdict,
        [
            Table(
                "Share of the states that differs between positions, by layers (untrained, without norms)",
                ("layers", *STACKS),
                [(depth, *(spread[name][depth] for name in STACKS)) for depth in depths],
            ),
            Table(
                "Label = random table of this letter and the one before; one layer",
                ("d_ff / d_model", "parameters", "held-out loss", "accuracy"),
                [(factor, parameters_of(factor), *trained[factor]) for factor in factors],
            ),
        ],
        Chart(
            "Rank collapse",
            "layers",
            "share that differs between positions",
            {name: list(spread[name].items()) for name in STACKS},
            log_x=True,
            log_y=True,
        ),
    )


@torch.no_grad()
def spread_by_depth(name: str, depths: list[int]) -> dict[int, float]:
    """`‖x - mean over positions‖ / ‖x‖` after so many layers (Dong et al., 2021, "Attention is not all you need")."""
    torch.manual_seed(1)
    x, spread = torch.randn(8, 16, WIDTH, dtype=torch.float64), {}
    for depth in range(1, depths[-1] + 1):
        parts: list[nn.Module] = [MultiHeadAttention(WIDTH, 2)]
        if "FFN" in name:
            parts.append(PositionwiseFeedForward(WIDTH, 4 * WIDTH))
        for part in parts:
            glorot(part)
            found = part.double()(x)
            x = x + found if "residual" in name else found
        if depth in depths:
            spread[depth] = float((x - x.mean(1, keepdim=True)).norm() / x.norm())
    return spread


def make_model(factor: int) -> Tagger:
    """One layer of the inner width `factor * d_model`; 0 takes the network out."""
    config = small_shape(LETTERS, width=WIDTH, layers=1, n_heads=2, d_ff=max(1, factor) * WIDTH)
    encoder = Encoder(config)
    if factor == 0:
        for layer in encoder.layers:
            layer.feed_forward = NoFeedForward()
    return Tagger(config, encoder=encoder)


def parameters_of(factor: int) -> int:
    """Of the encoder."""
    return sum(parameter.numel() for parameter in make_model(factor).encoder.parameters())


def table_loss(factor: int, effort: Effort, seed: int) -> tuple[float, float]:
    """Train, and measure loss and accuracy on fresh sequences."""
    torch.manual_seed(seed)
    model, generator = make_model(factor), seeded(seed)
    table = random_letters(LETTERS, LETTERS, LETTERS, generator)

    def draw(count: int, generator: torch.Generator) -> Examples:
        ids = random_letters(count, 12, LETTERS, generator)
        letters = ids - CONTROL_COUNT
        return ids, nn.functional.pad(table[letters[:, 1:], letters[:, :-1]], (1, 0))

    train_tagger(model, lambda: draw(64, generator), options(effort.of(300, 600, 3000), 5e-3))
    return loss_and_accuracy(model, draw(128, seeded(99)))
