"""What the experiments that train have in common: small tasks, small models, and the project's own training step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.control_tokens import CONTROL_COUNT, PAD
from clearhead.models.transformer import Transformer
from clearhead.parts.embedding import TokenEmbedding
from clearhead.parts.layers import Encoder
from clearhead.parts.masks import padding_mask
from clearhead.parts.positions import PositionalEncoding
from clearhead.recipe import TrainingSection
from clearhead.text.batches import Batch
from clearhead.training.loss import training_loss
from clearhead.training.optimizer import make_optimizer
from clearhead.training.schedules import learning_rate
from clearhead.training.step import compute_gradient

Examples = tuple[Tensor, Tensor]
"""Token ids and their labels, both `(b, t)`; a position whose label is padding has none."""


def small_shape(
    tokens: int, labels: int | None = None, *, width: int = 64, layers: int = 2, **changes: object
) -> ModelConfig:
    """A model of `tokens` kinds of input, the control tokens not counted."""
    shape: dict[str, object] = {
        "source_vocab": tokens + CONTROL_COUNT,
        "target_vocab": (tokens if labels is None else labels) + CONTROL_COUNT,
        "d_model": width,
        "d_ff": 4 * width,
        "n_heads": 4,
        "encoder_layers": layers,
        "decoder_layers": layers or 1,
        "dropout": 0.0,
        "norm_position": "pre",
    }
    return ModelConfig.from_dict({**shape, **changes})


def glorot(module: nn.Module) -> None:
    """The first weights that a `Transformer` gives its layers."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


class Labeller(nn.Module):
    """Gives every position a label: states, and their projection."""

    projection: nn.Linear

    def states(self, ids: Tensor) -> Tensor:
        """`(b, t)` token ids to `(b, t, m)`."""
        raise NotImplementedError

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of each position's label."""
        return self.projection(self.states(ids))


class Tagger(Labeller):
    """An encoder that gives every position a label: embedding, positions, encoder layers, projection."""

    def __init__(
        self, config: ModelConfig, *, positions: nn.Module | None = None, encoder: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(config.source_vocab, config.d_model)
        self.positions = PositionalEncoding(config.d_model, dropout=config.dropout) if positions is None else positions
        self.encoder = Encoder(config) if encoder is None else encoder
        self.projection = nn.Linear(config.d_model, config.target_vocab, bias=False)
        glorot(self)

    def states(self, ids: Tensor) -> Tensor:
        """`(b, t)` token ids to `(b, t, m)`."""
        return self.encoder(self.positions(self.embedding(ids)), padding_mask(ids, PAD))


def random_letters(count: int, length: int, tokens: int, generator: torch.Generator) -> Tensor:
    """`(count, length)` ids of letters, each equally likely."""
    return torch.randint(CONTROL_COUNT, CONTROL_COUNT + tokens, (count, length), generator=generator)


def options(updates: int, rate: float, *, warmup: int | None = None, **changes: object) -> TrainingSection:
    """The paper's Adam; unless told otherwise a tenth of the updates warms up, and then the rate is constant."""
    fields: dict[str, object] = {
        "updates": updates,
        "peak_rate": rate,
        "warmup": updates // 10 if warmup is None else warmup,
        "schedule": "constant",
        "label_smoothing": 0.0,
    }
    return TrainingSection.model_validate({**fields, **changes})


def learn(model: nn.Module, options: TrainingSection, gradient: Callable[[], float]) -> list[float]:
    """Train; `gradient` leaves one in `.grad` and returns the loss. Returns the loss of every update."""
    optimizer = make_optimizer(model, options)
    losses: list[float] = []
    model.train()
    for update in range(1, (options.updates or 0) + 1):
        optimizer.zero_grad(set_to_none=True)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(
                options.schedule, update, peak=options.peak_rate, warmup=options.warmup, total=options.updates
            )
        losses.append(gradient())
        optimizer.step()
    model.eval()
    return losses


def train_tagger(model: Labeller, draw: Callable[[], Examples], options: TrainingSection) -> list[float]:
    """Train on freshly drawn examples, by the project's own loss."""

    def gradient() -> float:
        ids, labels = draw()
        real = labels != PAD
        loss, plain = training_loss(
            model.states(ids)[real],
            model.projection.weight,
            labels[real],
            smoothing=options.label_smoothing,
            divisor=int(real.sum()),
        )
        loss.backward()  # type: ignore[no-untyped-call]
        if options.clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), options.clip_norm)
        return float(plain)

    return learn(model, options, gradient)


def train_transformer(model: Transformer, draw: Callable[[], Batch], options: TrainingSection) -> list[float]:
    """Train a whole Transformer on freshly drawn batches, by the project's own training step."""
    return learn(model, options, lambda: compute_gradient(model, [draw()], options, torch.device("cpu")).plain)


@torch.no_grad()
def loss_and_accuracy(model: nn.Module, examples: Examples) -> tuple[float, float]:
    """Mean negative log-likelihood in nats, and the share of right labels."""
    ids, labels = examples
    real = labels != PAD
    logits = model(ids)[real]
    loss = nn.functional.cross_entropy(logits, labels[real])
    return float(loss), float((logits.argmax(-1) == labels[real]).float().mean())


def seeded(seed: int) -> torch.Generator:
    """Data are drawn from a generator of their own, so that every model of a comparison sees the same."""
    return torch.Generator().manual_seed(seed)
