"""The checks in their order: what is at the root of other faults comes first."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from clearhead.doctor.checks import (
    causality,
    decoding,
    first_weights,
    invariance,
    loss,
    masks,
    positions,
    text,
    training,
)
from clearhead.doctor.examination import Examination
from clearhead.doctor.finding import Finding, Report, not_measured
from clearhead.doctor.patient import Patient, check_call
from clearhead.errors import ConfigError


@dataclass(frozen=True)
class Check:
    """A check's short name, what it is about, and the function that makes it."""

    name: str
    title: str
    run: Callable[[Examination], Finding]
    trains: bool = False
    """It takes training steps: the slow part of an examination."""


CHECKS = (
    Check("data", "duplicates between sets, empty or identical pairs, outliers, misaligned lines", text.check_data),
    Check("tokenizer", "control symbols from text, lossy round trip, unknown tokens", text.check_tokenizer),
    Check("masks", "the mask is upside down, or added as 0/1 numbers", masks.check_masks),
    Check("scores", "scores not scaled, or scaled twice; softmax over the wrong axis", masks.check_scores),
    Check("depth", "gradients vanish or explode by depth", training.check_depth),
    Check("encoder", "the decoder ignores the encoder", positions.check_encoder),
    Check("parts", "parts that the model doesn't know of, or that nothing is learned by", first_weights.check_parts),
    Check(
        "evaluation", "dropout active in evaluation; the state depends on what ran before", invariance.check_evaluation
    ),
    Check("empty-rows", "rows with nothing to attend to", invariance.check_empty_rows),
    Check("positions", "order does not matter; positions repeat or overflow", positions.check_positions),
    Check("causality", "the future leaks into the past", causality.check_causality),
    Check("padding", "padding leaks into sentences", invariance.check_padding),
    Check("batch", "the batch changes the answer", invariance.check_batch),
    Check("labels", "wrong first target token, labels shifted zero or two times", loss.check_labels),
    Check("loss", "the loss counts padding, or depends on how batches are split", loss.check_loss),
    Check("smoothing", "label smoothing gives mass to padding", loss.check_smoothing),
    Check("tied-weights", "tied weights are not shared", first_weights.check_tied_weights),
    Check("initial-loss", "the first loss is far from ln(vocabulary)", first_weights.check_initial_loss),
    Check("embedding-scale", "embeddings and positions are not of one size", first_weights.check_embedding_scale),
    Check("schedule", "first step at zero, off by one, warm-up longer than training", training.check_schedule),
    Check("warmup", "post-norm without warm-up at this depth", training.check_warmup, trains=True),
    Check("precision", "float16 overflow, bfloat16 drift", invariance.check_precision),
    Check("cache", "cached decoding differs from uncached", decoding.check_cache),
    Check("overfitting", "can't overfit ten examples", training.check_overfitting, trains=True),
    Check("beam", "beams are tiled over the wrong sentence", decoding.check_beam, trains=True),
)
NAMES = tuple(check.name for check in CHECKS)


def run_checks(
    patient: Patient,
    *,
    only: Sequence[str] = (),
    training: bool = True,
    on_finding: Callable[[Finding], None] | None = None,
) -> Report:
    """Examine a patient: all checks, or those named in `only`; without those that train if not `training`.

    Raises `ConfigError` for an unknown check, or a model that can't be called.
    """
    for name in only:
        if name not in NAMES:
            raise ConfigError(f"no check is called {name!r}; there are {', '.join(NAMES)}")
    examination = Examination(patient)
    findings = []
    with undisturbed():
        check_call(patient, examination.model)
        for check in CHECKS:
            if (only and check.name not in only) or (check.trains and not training):
                continue
            findings.append(run_check(check, examination))
            if on_finding is not None:
                on_finding(findings[-1])
    return Report(patient.name, tuple(findings))


@contextmanager
def undisturbed() -> Iterator[None]:
    """The model's own warnings are not the doctor's; and torch's "fast path", a prototype that replaces whole layers of
    `nn.TransformerEncoder` in evaluation, is off: it is the model that is examined."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    library = logging.getLogger("transformers")
    level = library.level
    library.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        library.setLevel(level)
        torch.backends.mha.set_fastpath_enabled(fast_path)


def run_check(check: Check, examination: Examination) -> Finding:
    """One check. A model that it can't be made on is no fault: it says what happened."""
    try:
        found = check.run(examination)
    except Exception as error:
        found = not_measured(f"could not be measured: {type(error).__name__}: {error}")
    return replace(found, check=check.name, title=check.title)
