"""Mistakes in training and decoding: labels, loss, schedule, cache, beams; and in text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor.mistakes import textbook
from clearhead.doctor.mistakes.planted import planted
from clearhead.doctor.mistakes.textbook import PAD, UPDATES, WARMUP, Cache, Textbook, patient, token_losses
from clearhead.doctor.patient import Patient, TextSide


def cross_entropy(logits: Tensor, labels: Tensor, **options: Any) -> Tensor:
    """Torch's, over all positions."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), **options)


@planted("labels", "T14: labels not shifted")
def labels_not_shifted() -> Patient:
    """Input and labels are the same tokens."""

    def loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(model(source, target), target, ignore_index=PAD)

    return patient(loss=loss, gradient=None)


@planted("labels", "T14: shifted by hand and by the loss")
def labels_shifted_twice() -> Patient:
    """Labels are shifted before, and the loss shifts them again."""

    def loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        labels = target[:, 1:]
        return cross_entropy(model(source, target[:, :-1])[:, :-1], labels[:, 1:].contiguous(), ignore_index=PAD)

    return patient(loss=loss, gradient=None)


@planted("labels", "T14: another start token in training than in decoding")
def wrong_first_token() -> Patient:
    """Training begins with the end token, decoding with the start token."""

    def loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        ids, labels = textbook.shifted(target)
        ids = torch.cat([torch.full_like(ids[:, :1], textbook.EOS), ids[:, 1:]], 1)
        return cross_entropy(model(source, ids), labels, ignore_index=PAD)

    return patient(loss=loss, gradient=None)


@planted("labels", "G9: the end token is never a label, so decoding never ends")
def end_never_predicted() -> Patient:
    """Targets are cut before their end token."""

    def loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        ids, labels = textbook.shifted(target.masked_fill(target == textbook.EOS, PAD))
        return cross_entropy(model(source, ids), labels, ignore_index=PAD)

    return patient(loss=loss, gradient=None)


@planted("loss", "T6: padding not ignored")
def padding_counts() -> Patient:
    """The loss has no ignore_index."""

    def loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        ids, labels = textbook.shifted(target)
        return cross_entropy(model(source, ids), labels)

    return patient(loss=loss, gradient=None)


@planted("loss", "T6: divided by the size of the matrix")
def divided_by_padded_size() -> Patient:
    """Padding is masked out of the sum, but counts in the mean."""

    def loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        losses, real = token_losses(model, source, target)
        return (losses * real).mean()

    return patient(loss=loss, gradient=None)


@planted("loss", "T3, P2: means of means")
def means_of_means() -> Patient:
    """Accumulated batches are averaged as means, whatever their number of tokens."""

    def gradient(model: nn.Module, batches: Sequence[tuple[Tensor, Tensor]]) -> None:
        for source, target in batches:
            (textbook.loss(model, source, target) / len(batches)).backward()  # type: ignore[no-untyped-call]

    return patient(gradient=gradient)


@planted("loss", "loss off by the number of accumulated batches")
def accumulated_without_dividing() -> Patient:
    """The losses of accumulated batches are added up without dividing."""

    def gradient(model: nn.Module, batches: Sequence[tuple[Tensor, Tensor]]) -> None:
        for source, target in batches:
            textbook.loss(model, source, target).backward()  # type: ignore[no-untyped-call]

    return patient(gradient=gradient)


@planted("smoothing", "T6: padding gets a share of the smoothed mass")
def smoothing_on_padding() -> Patient:
    """Label smoothing spreads over the whole vocabulary, padding among it."""

    def loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        ids, labels = textbook.shifted(target)
        return cross_entropy(model(source, ids), labels, ignore_index=PAD, label_smoothing=0.1)

    return patient(loss=loss, gradient=None)


def scheduled(rate: Any) -> Any:
    """Adam with a LambdaLR of this rate."""

    def make(model: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
        adam = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
        return adam, torch.optim.lr_scheduler.LambdaLR(adam, rate)

    return make


@planted("schedule", "T5: the first update at rate 0")
def first_update_at_zero() -> Patient:
    """The formula is given the step counted from 0."""
    return patient(optimizer=scheduled(lambda step: 2e-3 * min(1.0, step / WARMUP)))


@planted("schedule", "T5: one update off")
def schedule_one_off() -> Patient:
    """The formula is given the step counted from 2."""
    return patient(optimizer=scheduled(lambda step: textbook.rate(step + 2)))


@planted("schedule", "T5: warm-up longer than the training")
def warmup_longer_than_training() -> Patient:
    """The training ends before the warm-up does."""
    return patient(total_updates=WARMUP // 2)


@planted("schedule", "T5: division by zero with a warm-up of 0")
def division_by_warmup() -> Patient:
    """The warm-up is 0, and the schedule divides by it."""
    warmup = 0
    return patient(optimizer=scheduled(lambda step: min(1.0, (step + 1) / warmup)), warmup=0, total_updates=UPDATES)


@planted("cache", "positions begin at 0 in every step")
def cached_positions_at_zero() -> Patient:
    """In every step of decoding the token gets position 0."""

    class Model(Textbook):
        def step(self, ids: Tensor, position: int, memory: Tensor, mask: Tensor | None, cache: Cache) -> Tensor:
            return super().step(ids, 0, memory, mask, cache)

    return patient(Model)


@planted("cache", "M10: is_causal is aligned top-left")
def cached_mask_top_left() -> Patient:
    """With a cache the triangle is aligned top-left: the newest token sees the first key only."""

    class Model(Textbook):
        def step_mask(self, position: int) -> Tensor | None:
            return torch.ones(1, position + 1, dtype=torch.bool).tril()[None, None]

    return patient(Model)


@planted("cache", "G13: padding is seen while decoding")
def cached_without_padding_mask() -> Patient:
    """While decoding, the source's padding is not hidden."""

    class Model(Textbook):
        def step(self, ids: Tensor, position: int, memory: Tensor, mask: Tensor | None, cache: Cache) -> Tensor:
            return super().step(ids, position, memory, None, cache)

    return patient(Model)


@planted("beam", "G2: encoder states tiled s1 s2 s1 s2, beams s1 s1 s2 s2")
def beams_tiled_wrongly() -> Patient:
    """`repeat` where `repeat_interleave` was meant."""

    def decode(model: Any, source: Tensor, beams: int) -> list[list[int]]:
        return textbook.decode(model, source, beams, lambda x, n: x.repeat(n, *[1] * (x.dim() - 1)))

    return patient(decode=decode)


@planted("overfitting", "an optimizer step that undoes itself, a rate of nothing, weights frozen by mistake")
def frozen_by_mistake() -> Patient:
    """All weights but those of the normalisations are frozen, as for a fine-tuning that this is not."""

    class Model(Textbook):
        def __init__(self) -> None:
            super().__init__()
            for name, parameter in self.named_parameters():
                parameter.requires_grad = "norm" in name

    return patient(Model)


# ---- text -----------------------------------------------------------------------------------------------------------

WORDS = ["the", "a", "small", "big", "old", "dog", "cat", "house", "tree", "runs", "sleeps", "under", "near", "quickly"]
TEXTS = ["the old dog sleeps under the tree", "a cat runs quickly", "the big house sleeps near a small tree"]


def word_side(**changes: Any) -> TextSide:
    """A word tokenizer, and what it is to read."""
    vocabulary = {word: place + 4 for place, word in enumerate(WORDS)}
    names = {number: word for word, number in vocabulary.items()}
    usual: dict[str, Any] = {
        "encode": lambda text: [vocabulary.get(word, 3) for word in text.split(" ")],
        "decode": lambda ids: " ".join(names.get(token, "?") for token in ids),
        "control": frozenset({0, 1, 2}),
        "unknown": 3,
        "texts": TEXTS,
    }
    return TextSide(**{**usual, **changes})


@planted("tokenizer", "V1, V2: text that spells a control token becomes one")
def control_tokens_from_text() -> Patient:
    """A text with `</s>` in it ends there."""
    usual, special = word_side(), {"<pad>": 0, "<s>": 1, "</s>": 2}

    def encode(text: str) -> list[int]:
        return [special.get(word, usual.encode(word)[0]) for word in text.split(" ")]

    return patient(text_sides={"source": word_side(encode=encode)})


@planted("tokenizer", "V3: decode is not the inverse of encode")
def lossy_tokenizer() -> Patient:
    """Texts come back in lower case, with spaces before punctuation gone."""
    letters = [chr(code) for code in range(32, 127)]
    side = TextSide(
        encode=lambda text: [letters.index(c) + 4 if c in letters else 3 for c in " ".join(text.lower().split())],
        decode=lambda ids: "".join(letters[token - 4] for token in ids),
        control=frozenset({0, 1, 2}),
        unknown=3,
        texts=["A Dog runs.", "Two  spaces", "The end"],
    )
    return patient(text_sides={"source": side})


@planted("tokenizer", "a vocabulary of other data")
def unknown_words() -> Patient:
    """A third of the words are not in the vocabulary."""
    return patient(text_sides={"source": word_side(texts=[f"{text} purrs loudly" for text in TEXTS])})


def some_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Sentences of different lengths, and the same in capitals."""
    generator = random.Random(seed)
    sources = [" ".join(generator.choices(WORDS, k=generator.randint(2, 20))) for _ in range(count)]
    return [(source, source.upper() + " .") for source in sources]


@planted("data", "test pairs that were trained on")
def test_pairs_in_training() -> Patient:
    """Half of the test pairs are training pairs."""
    train, test = some_pairs(800, 1), some_pairs(100, 2)
    return patient(data={"train": train, "test": test[:50] + train[:50]})


@planted("data", "D2: a line too many on one side")
def lines_out_of_step() -> Patient:
    """One source line was lost: from there on every pair is wrong."""
    pairs = some_pairs(900, 1)
    sources, targets = [s for s, _ in pairs], [t for _, t in pairs]
    shifted = list(zip(sources[:500] + sources[501:], targets[:-1], strict=True))
    return patient(data={"train": shifted})


@planted("data", "D5, D6: pairs with an empty side")
def empty_targets() -> Patient:
    """Some targets are empty."""
    pairs = some_pairs(300, 1)
    return patient(data={"train": [(s, "" if i % 20 == 7 else t) for i, (s, t) in enumerate(pairs)]})
