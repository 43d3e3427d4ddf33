"""A small real task for the experiments on training and search: written dates of six languages, read as ISO dates.

They are the texts of the demo `dates`, long and full forms, with the month in words, so no text means two days.
"""

from __future__ import annotations

import random
from functools import cache
from typing import NamedTuple

import torch

from clearhead.config import ModelConfig
from clearhead.experiments.learning import options, train_transformer
from clearhead.experiments.result import Effort
from clearhead.models.transformer import Transformer
from clearhead.text.batches import Batch, collate
from clearhead.text.tokenizers import Tokenizer, train_tokenizer

LOCALES = ("en_US", "de", "fr", "es", "pl", "fi")
TEST_PAIRS = 400

Pair = tuple[str, str]
Ids = tuple[list[int], list[int]]


class Dates(NamedTuple):
    """The task as ids."""

    source: Tokenizer
    target: Tokenizer
    train: list[Ids]
    test: list[Ids]


@cache
def load_dates(pairs: int) -> Dates:
    """The task, with so many training pairs; no day is in both parts. Needs the `demo` extra (`ConfigError`)."""
    from clearhead.demos.dates import forms_of, split_days

    train_days, _, test_days = split_days()
    generator = random.Random(1)
    forms = [form for locale in LOCALES for form in forms_of(locale) if "MMMM" in form.pattern]
    train, test = (
        [(generator.choice(forms).write(day), day.isoformat()) for day in days]
        for days in ((train_days * 2)[:pairs], test_days[:TEST_PAIRS])
    )
    source, target = (train_tokenizer("char", [pair[side] for pair in train]) for side in (0, 1))
    encoded = [[(source.encode(text), target.encode(date)) for text, date in part] for part in (train, test)]
    return Dates(source, target, *encoded)


def train_dates(
    effort: Effort,
    seed: int,
    *,
    updates: int,
    rate: float,
    warmup: int,
    norm_position: str = "post",
    layers: int = 2,
    smoothing: float = 0.0,
) -> tuple[Transformer, list[float]]:
    """A model of the task after some updates, and the plain loss of each."""
    dates = load_dates(effort.of(1500, 4000, 20_000))
    torch.manual_seed(seed)
    shape = {"d_model": 64, "d_ff": 128, "n_heads": 4, "encoder_layers": layers, "decoder_layers": layers}
    sizes = {"source_vocab": dates.source.vocab_size, "target_vocab": dates.target.vocab_size}
    config = ModelConfig.from_dict({**sizes, **shape, "dropout": 0.0, "norm_position": norm_position})
    model, generator = Transformer(config), random.Random(seed)

    def draw() -> Batch:
        return collate(generator.sample(dates.train, 32))

    chosen = options(updates, rate, warmup=warmup, label_smoothing=smoothing, schedule="inverse_sqrt")
    return model, train_transformer(model, draw, chosen)


def held_out_batch(effort: Effort) -> tuple[Dates, Batch]:
    """The task, and its test pairs as one batch."""
    dates = load_dates(effort.of(1500, 4000, 20_000))
    return dates, collate(dates.test)
