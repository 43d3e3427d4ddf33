"""A few real training steps on ten examples: to copy, to continue, or to name each token."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor.examination import Examination, seeded
from clearhead.doctor.loss_trace import sentences

LENGTHS = (3, 4, 5, 6, 3, 4, 5, 6, 4, 5)
UPDATES = 300
FEW_TOKENS = 12
"""With fewer, ten sentences can't all be different enough to be told apart by their beginnings."""


@dataclass(frozen=True)
class Examples:
    """Ten sentences. For an encoder the target is the source with other tokens in place of its own."""

    source: Tensor
    target: Tensor


@dataclass
class Trained:
    """What became of it."""

    model: nn.Module
    examples: Examples
    losses: list[float] = field(default_factory=list)
    teacher_forced: float = 0.0
    """The share of real target tokens that are the likeliest, the ones before being given."""
    free_running: float = 0.0
    """The share of sentences that greedy decoding reproduces."""


def ten_examples(examination: Examination) -> Examples:
    """Sources, and the same tokens as targets (`BOS y … EOS`)."""
    patient = examination.patient
    source, target = sentences(examination, LENGTHS)
    if patient.kind == "encoder-decoder":
        source = torch.cat([target[:, 1:], target.new_full((len(target), 1), patient.pad)], 1)  # to copy
    if patient.kind == "encoder":
        target = torch.where(
            source == patient.pad, source, examination.random_ids(source.size(0), source.size(1), seed=31)
        )
        return Examples(source, target)
    return Examples(source, target)


def usual_loss(examination: Examination, model: nn.Module, examples: Examples) -> Tensor:
    """Cross-entropy as it should be, for patients that bring no loss of their own."""
    patient = examination.patient
    if patient.kind == "encoder":
        logits, labels = examination.logits(model, examples.source), examples.target
    elif patient.kind == "decoder":
        logits, labels = examination.logits(model, examples.target[:, :-1]), examples.target[:, 1:]
    else:
        given = examples.target[:, :-1].masked_fill(examples.target[:, :-1] == patient.eos, patient.pad)
        logits, labels = examination.logits(model, examples.source, given), examples.target[:, 1:]
    real = real_labels(examination, labels)
    return F.cross_entropy(logits[real].float(), labels[real])


def real_labels(examination: Examination, labels: Tensor) -> Tensor:
    """Where labels are no padding; of a sentence's end only the first one is."""
    patient = examination.patient
    if patient.pad != patient.eos:
        return labels != patient.pad
    return (labels == patient.eos).cumsum(1) <= 1


def training_loss(examination: Examination, model: nn.Module, examples: Examples) -> Tensor:
    """The patient's own loss, or the usual one."""
    if examination.patient.loss is None or examination.patient.kind == "encoder":
        return usual_loss(examination, model, examples)
    return examination.patient.loss(model, examples.source, examples.target)


def width_of(model: nn.Module) -> int:
    """The model's width, by its embeddings."""
    return max([m.embedding_dim for m in model.modules() if isinstance(m, nn.Embedding)], default=64)


def careful_rate(model: nn.Module) -> float:
    """A peak learning rate that fits the width."""
    return min(3e-3, 0.1 / width_of(model) ** 0.75)


def train_on(
    examination: Examination,
    examples: Examples,
    *,
    updates: int = UPDATES,
    warmup: int = 30,
    rate: float | None = None,
    optimizer: Callable[[nn.Module], Any] | None = None,
    rates: Callable[[int], float] | None = None,
    until: float | None = None,
) -> Trained:
    """Train a new model; with `optimizer` (and `rates`) as the patient would, else with Adam and a warm-up."""
    with seeded(41):
        model = examination.patient.build().train()
        if not any(p.requires_grad for p in model.parameters()):
            model.requires_grad_()
        made = optimizer(model) if optimizer else None
        adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98)) if made is None else None
        step, scheduler = (made if isinstance(made, tuple) else (made, None)) if adam is None else (adam, None)
        peak = rate or careful_rate(model)
        trained = Trained(model, examples)
        for update in range(1, updates + 1):
            loss = training_loss(examination, model, examples)
            trained.losses.append(float(loss.detach()))
            if not math.isfinite(trained.losses[-1]):
                break
            step.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if adam is not None:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                down = 1 - 0.9 * update / updates
                for group in adam.param_groups:
                    group["lr"] = peak * min(1.0, update / warmup) * down
            elif rates is not None:
                for group in step.param_groups:
                    group["lr"] = rates(update)
            step.step()
            if scheduler is not None:
                scheduler.step()
            if until is not None and update % 25 == 0:
                trained.teacher_forced = teacher_forced(examination, trained)
                if trained.teacher_forced >= until and update >= 75:
                    break
    model.eval()
    return trained


def teacher_forced(examination: Examination, trained: Trained) -> float:
    """The share of labels that are the likeliest token, everything before them being given; in evaluation mode."""
    patient, examples, model = examination.patient, trained.examples, trained.model
    was_training = model.training
    model.eval()
    if patient.kind == "encoder":
        logits, labels = examination.look(model, examples.source), examples.target
    else:
        given, labels = examples.target[:, :-1], examples.target[:, 1:]
        first = [examples.source] if patient.kind == "encoder-decoder" else []
        logits = examination.look(model, *first, given)
    model.train(was_training)
    real = real_labels(examination, labels)
    if patient.kind == "decoder":
        real[:, 0] = False  # all begin alike: nobody could know
    return float((logits.argmax(-1) == labels)[real].double().mean())


def free_running(examination: Examination, trained: Trained) -> float:
    """The share of the sentences that come out right, each token being the likeliest behind those before it."""
    patient, examples, model = examination.patient, trained.examples, trained.model
    begun = 1 if patient.kind == "encoder-decoder" else 2
    first = [examples.source] if patient.kind == "encoder-decoder" else []
    ids = examples.target[:, :begun]
    for _ in range(examples.target.size(1) - begun):
        ids = torch.cat([ids, examination.look(model, *first, ids)[:, -1:].argmax(-1)], 1)
    right = 0
    for found, wanted in zip(ids.tolist(), examples.target.tolist(), strict=True):
        length = wanted.index(patient.eos, 1) + 1
        right += found[:length] == wanted[:length]
    return right / len(ids)


def memorised(examination: Examination) -> Trained:
    """A model that has been trained on ten examples; worked out once."""
    found = examination.notes.get("memorised")
    if not isinstance(found, Trained):
        found = train_on(examination, ten_examples(examination), until=1.0)
        found.teacher_forced = teacher_forced(examination, found)
        if examination.patient.has_decoder:
            found.free_running = free_running(examination, found)
        examination.notes["memorised"] = found
    return found
