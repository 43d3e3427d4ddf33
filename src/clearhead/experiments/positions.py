"""What positions are good for, and how far each kind of them carries (section 3.5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
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
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.layers import Encoder
from clearhead.parts.positions import PositionalEncoding, sinusoids

TITLE = "order, relative positions, and longer sequences than those seen"
CLAIM = (
    "Without positions self-attention does not see order; PE(pos + k) is a linear function of PE(pos); sinusoids "
    "extrapolate to sequences longer than those seen in training."
)
FORMULA = """PE(pos, 2i) = sin(pos ω_i),  PE(pos, 2i+1) = cos(pos ω_i),  ω_i = 10000^(-2i / d_model)
PE(pos + k) = R_k PE(pos),  R_k made of blocks [cos kω_i  sin kω_i; -sin kω_i  cos kω_i]"""

LETTERS, BACK = 12, 2
"""The task: name the letter that stood `BACK` places before. It needs the distance, and nothing else."""


class LearnedPositions(nn.Module):
    """A learned vector for each position (Gehring et al., 2017): those that training never reached stay random."""

    def __init__(self, d_model: int, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(length, d_model)
        nn.init.normal_(self.table.weight, std=0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Add them."""
        return x + self.table.weight[: x.size(1)]


class RotaryAttention(MultiHeadAttention):
    """Queries and keys are turned by their position (Su et al., 2021), so that scores see distances alone."""

    def forward(  # type: ignore[override]
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Self-attention."""
        key, value = self.keys_and_values(x)
        query = self.split_heads(self.w_q(x))
        return self.w_o(self.join_heads(self.attention(rotate(query), rotate(key), value, mask)))


def rotate(x: Tensor) -> Tensor:
    """Multiply each pair of features by the `R_k` of its position; `(b, h, t, d)`."""
    table = sinusoids(x.size(-2), x.size(-1)).to(x)
    sine, cosine = table[:, 0::2], table[:, 1::2]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2)


def rotation(k: int, d_model: int) -> Tensor:
    """`R_k` of the formula in float64: block-diagonal, `(m, m)`, the same for every position."""
    angle = k * 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    blocks = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()], -1).view(-1, 2, 2)
    return torch.block_diag(*blocks)


def measure(effort: Effort, seed: int) -> Result:
    """Equivariance, the rotation, and training on short sequences with a test on long ones."""
    order = {name: order_seen(positions) for name, positions in (("none", nn.Identity()), ("sinusoids", None))}
    shifts = [(k, rotation_error(k)) for k in effort.of([1, 50], [1, 10, 100, 1000], [1, 10, 100, 1000, 10_000])]

    longest = effort.of(8, 16, 32)
    lengths = [longest // 2, longest, longest + longest // 2, 2 * longest, 4 * longest]
    kinds = ("sinusoidal", "learned", "rotary")
    curves = {kind: accuracy_by_length(kind, longest, lengths, effort, seed) for kind in kinds}

    inside, double, four = (curves["sinusoidal"][length] for length in (longest, 2 * longest, 4 * longest))
    invisible = order["none"] < 1e-5 < order["sinusoids"] and max(error for _, error in shifts) < 1e-3
    carried = {kind: curves[kind][4 * longest] for kind in kinds}
    extrapolates = four > 0.9 * inside
    verdict = (
        f"Without positions a permuted input gives the permuted output to {order['none']:.0e} (with them it differs by "
        f"{order['sinusoids']:.1f}), one matrix R_k moves every position by k to {shifts[0][1]:.0e}; but trained "
        f"on up to {longest} tokens, sinusoids are right for {inside:.0%} there, and beyond, in {2 * longest} and "
        f"{4 * longest} tokens, for {double:.0%} and {four:.0%} (learned {carried['learned']:.0%}, rotary "
        f"{carried['rotary']:.0%}, guessing {1 / LETTERS:.0%}): being defined everywhere is "
        + ("here enough to extrapolate." if extrapolates else "not the same as extrapolating.")
    )
    rows = [(length, *(curves[kind][length] for kind in kinds)) for length in lengths]
    return Result(
        judge(invisible, partly=not extrapolates),
        verdict,
        [
            Table(
                "Permute the input of an untrained encoder, and undo it in the output",
                ("positions", "largest difference"),
                list(order.items()),
            ),
            Table("PE(pos + k) against R_k PE(pos), 512 positions, d_model 64", ("k", "largest error"), shifts),
            Table(
                f"Which letter stood {BACK} places before? Accuracy; trained on up to {longest} tokens, beyond them "
                "only the new places count",
                ("tokens", *kinds),
                rows,
            ),
        ],
        Chart(
            f"Trained on up to {longest} tokens",
            "tokens",
            "accuracy",
            {kind: list(curves[kind].items()) for kind in kinds},
            log_x=True,
        ),
    )


@torch.no_grad()
def order_seen(positions: nn.Module | None) -> float:
    """How far an untrained encoder is from equivariance: `max |f(P x) - P f(x)|` over a permutation `P`."""
    model = Tagger(small_shape(LETTERS), positions=positions).eval()
    ids = random_letters(4, 23, LETTERS, seeded(1))
    permutation = torch.randperm(ids.size(1))
    return float((model(ids[:, permutation]) - model(ids)[:, permutation]).abs().max())


def rotation_error(k: int, d_model: int = 64, positions: int = 512) -> float:
    """The largest `|PE(pos + k) - R_k PE(pos)|`, with the project's table."""
    table = sinusoids(positions + k, d_model).double()
    return float((table[k:] - table[:positions] @ rotation(k, d_model).T).abs().max())


def make_model(kind: str, longest: int) -> Tagger:
    """An encoder with one kind of positions."""
    config = small_shape(LETTERS, width=32, layers=2, n_heads=2)
    match kind:
        case "sinusoidal":
            return Tagger(config, positions=PositionalEncoding(config.d_model))
        case "learned":
            return Tagger(config, positions=LearnedPositions(config.d_model, longest))
        case _:
            return Tagger(config, positions=nn.Identity(), encoder=rotary_encoder(config))


def rotary_encoder(config: ModelConfig) -> Encoder:
    """An encoder whose attention is rotary."""
    encoder = Encoder(config)
    for layer in encoder.layers:
        layer.self_attention = RotaryAttention(config.d_model, config.n_heads)
    return encoder


def accuracy_by_length(kind: str, longest: int, lengths: list[int], effort: Effort, seed: int) -> dict[int, float]:
    """Train on up to `longest` tokens, test on each of `lengths`; of longer ones only the places beyond count."""
    torch.manual_seed(seed)
    model = make_model(kind, max(lengths))
    generator = seeded(seed)

    def draw() -> Examples:
        length = int(torch.randint(BACK + 1, longest + 1, (), generator=generator))
        return task(effort.of(32, 64, 64), length, generator)

    train_tagger(model, draw, options(effort.of(200, 500, 3000), 3e-3))
    found = {}
    for length in lengths:
        ids, labels = task(64, length, seeded(99))
        if length > longest:
            labels[:, :longest] = PAD
        found[length] = loss_and_accuracy(model, (ids, labels))[1]
    return found


def task(count: int, length: int, generator: torch.Generator) -> Examples:
    """Letters, and for each the one `BACK` places before; the first ones have no label."""
    ids = random_letters(count, length, LETTERS, generator)
    return ids, nn.functional.pad(ids[:, :-BACK], (BACK, 0))
