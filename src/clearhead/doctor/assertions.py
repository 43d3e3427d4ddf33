"""For people's own tests: one function for each check, that fails with the doctor's words.

    def test_my_decoder_sees_no_future():
        assert_causal(MyDecoder(vocabulary=100))

Each takes a model, a function that builds one, or a `Patient`; keywords are those of `Patient`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

from clearhead.doctor.catalogue import run_checks
from clearhead.doctor.finding import Report
from clearhead.doctor.patient import Patient, guess_patient
from clearhead.errors import ConfigError

Model = nn.Module | Callable[[], nn.Module] | Patient


def assert_healthy(model: Model, *checks: str, training: bool = True, **adapter: Any) -> Report:
    """No check finds a fault: all of them, or those that are named. Raises `AssertionError` with what was found.

    A named check that can't be made fails too: a test that tests nothing must not pass.
    """
    report = run_checks(as_patient(model, **adapter), only=checks, training=training)
    failed = [f for f in report.findings if f.is_fault or (checks and f.verdict == "not measured")]
    if failed:
        raise AssertionError("\n".join(_say(f.check, f.measured, f.causes, f.look_at) for f in failed))
    return report


def as_patient(model: Model, **adapter: Any) -> Patient:
    """A patient of a model, of a function that builds one, or as it is."""
    if isinstance(model, Patient):
        if adapter:
            raise ConfigError("a Patient says all itself; give no further keywords")
        return model
    if isinstance(model, nn.Module):
        given = model
        adapter.setdefault("fresh_is_given", False)
        return guess_patient(lambda: copy.deepcopy(given), name=type(model).__name__, **adapter)
    return guess_patient(model, name=getattr(model, "__name__", "model"), **adapter)


def _say(check: str, measured: str, causes: tuple[str, ...], look_at: tuple[str, ...]) -> str:
    lines = [f"{check}: {measured}", *(f"  likely: {cause}" for cause in causes), *(f"  look at: {p}" for p in look_at)]
    return "\n".join(lines)


def assert_causal(model: Model, **adapter: Any) -> None:
    """No token changes logits before it; with larger weights and in half precision neither."""
    assert_healthy(model, "causality", **adapter)


def assert_padding_invariant(model: Model, **adapter: Any) -> None:
    """A sentence's logits don't depend on the padding behind it."""
    assert_healthy(model, "padding", **adapter)


def assert_batch_invariant(model: Model, **adapter: Any) -> None:
    """A sentence's logits don't depend on its neighbours and their order."""
    assert_healthy(model, "batch", **adapter)


def assert_repeatable(model: Model, **adapter: Any) -> None:
    """In evaluation mode nothing is random, and nothing stays from the batch before."""
    assert_healthy(model, "evaluation", **adapter)


def assert_finite_on_empty_rows(model: Model, **adapter: Any) -> None:
    """A sentence of padding alone makes no output and no gradient infinite."""
    assert_healthy(model, "empty-rows", **adapter)


def assert_masks_right(model: Model, **adapter: Any) -> None:
    """Hidden keys have no weight, the others have some, and no mask is of numbers 0 and 1."""
    assert_healthy(model, "masks", **adapter)


def assert_scaled(model: Model, **adapter: Any) -> None:
    """Scores are divided by the root of a head's width, once."""
    assert_healthy(model, "scores", **adapter)


def assert_order_matters(model: Model, **adapter: Any) -> None:
    """Every position is another one."""
    assert_healthy(model, "positions", **adapter)


def assert_tied(model: Model, **adapter: Any) -> None:
    """The output projection is the embedding: one tensor, also in a copy."""
    assert_healthy(model, "tied-weights", **{"tied": True, **adapter})


def assert_cache_exact(model: Model, **adapter: Any) -> None:
    """Decoding with the cache gives the logits of one forward pass; needs `cached=…`."""
    assert_healthy(model, "cache", **adapter)


def assert_learns(model: Callable[[], nn.Module] | Patient, **adapter: Any) -> None:
    """It can learn ten examples by heart, and reproduce them by itself."""
    assert_healthy(model, "overfitting", **adapter)
