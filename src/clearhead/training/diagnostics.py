"""`[diagnostics]`: now and then, what goes on inside a model in training, and a warning in plain words.

Measured from the update itself: the gradient's norm by layer, and how far the update moved each layer's weights. And by
a forward pass over a few sentences of its batch, in evaluation mode, that draws no random numbers: the size of each
layer's output, and how every head's attention is spread. A training is the same with and without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from clearhead.models.making import stacks_of
from clearhead.parts.attention import ScaledDotProductAttention
from clearhead.recipe import DiagnosticsSection
from clearhead.training.glance import Glance, glance_at_pairs

SATURATED, UNIFORM = 0.99, 0.999
"""A head whose largest weight is above the one on average sees one key each; one whose entropy is above the other, in
parts of the greatest possible, sees all alike."""
VANISHING = 100.0
LARGEST_STEP = 0.05
LARGEST_ACTIVATION = 1_000.0
GROUPS = {
    "gradient_norm": "gradient_norms", "activation": "activations", "update_ratio": "update_ratios",
    "entropy": "entropies",
}  # fmt: skip
"""What a line of the log calls the values by layer, and what a `Reading` does."""
COUNTS = ("saturated_heads", "uniform_heads", "heads")


@dataclass
class Reading:
    """One measurement; everything by layer or attention, under the path of its module."""

    gradient_norms: dict[str, float] = field(default_factory=dict)
    """Before clipping."""
    activations: dict[str, float] = field(default_factory=dict)
    """The root of the mean square of each layer's output, over real tokens."""
    update_ratios: dict[str, float] = field(default_factory=dict)
    """The norm of the weights' change over the norm of the weights."""
    entropies: dict[str, float] = field(default_factory=dict)
    """Mean over heads and queries, in parts of the greatest possible."""
    saturated_heads: int = 0
    uniform_heads: int = 0
    heads: int = 0

    def record(self) -> dict[str, Any]:
        """What goes to the log: one number a key, as TensorBoard needs it."""
        groups = {name: getattr(self, field) for name, field in GROUPS.items()}
        flat = {f"{name}/{path}": value for name, group in groups.items() for path, value in group.items()}
        return {**flat, **{name: getattr(self, name) for name in COUNTS}}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Reading:
        """The reading that a line of the log was made of; what is no number is left out."""
        fields: dict[str, Any] = {field: {} for field in GROUPS.values()}
        for key, value in record.items():
            name, _, path = key.partition("/")
            if path and name in GROUPS and isinstance(value, int | float):
                fields[GROUPS[name]][path] = float(value)
            elif key in COUNTS and isinstance(value, int):
                fields[key] = value
        return cls(**fields)


class Diagnostics:
    """Measures every so many updates, and warns when something leaves its range, once until it has come back."""

    def __init__(
        self,
        model: nn.Module,
        options: DiagnosticsSection,
        warn: Callable[[str], None],
        glance: Callable[[Any], Glance] = glance_at_pairs,
    ) -> None:
        self._model, self._options, self._warn, self._glance = model, options, warn, glance
        self._warned: set[str] = set()
        self.layers: dict[str, nn.Module] = {
            f"{stack}.{place}": layer
            for stack, layers in stacks_of(model).items()
            for place, layer in enumerate(cast("Iterable[nn.Module]", layers.layers))
        }

    def is_due(self, update: int) -> bool:
        """Whether this update is one to measure."""
        return self._options.every is not None and update % self._options.every == 0

    @contextmanager
    def measuring(self, update: int, batch: Any, clipped: float) -> Iterator[Callable[[], Reading] | None]:
        """Around the optimizer's step: what is yielded measures it, behind it; `None` where none is due.

        `clipped` is what the gradient was multiplied by to clip it.
        """
        if not self.is_due(update):
            yield None
            return
        gradient_norms = {path: norm_of(_gradients(layer)) / clipped for path, layer in self.layers.items()}
        before = {path: [p.detach().clone() for p in layer.parameters()] for path, layer in self.layers.items()}

        def measure() -> Reading:
            reading = Reading(gradient_norms)
            for path, layer in self.layers.items():
                moved = [p.detach() - old for p, old in zip(layer.parameters(), before[path], strict=True)]
                reading.update_ratios[path] = norm_of(moved) / max(norm_of(before[path]), 1e-12)
            self._look_inside(batch, reading)
            self.warn_of(update, reading)
            return reading

        yield measure

    def _look_inside(self, batch: Any, reading: Reading) -> None:
        """A forward pass over a few sentences, recording layers and heads."""
        glance = self._glance(batch.to(next(self._model.parameters()).device))
        real = glance.real
        handles = [
            layer.register_forward_hook(_note_size(reading, path, real[path.split(".")[0]]))
            for path, layer in self.layers.items()
        ]
        recorders = {}
        for name, module in self._model.named_modules():
            if isinstance(module, ScaledDotProductAttention):
                queries = real[name.split(".")[0]]
                recorders[module] = module.recorder
                module.recorder = _note_heads(reading, name.removesuffix(".attention"), queries, glance.seen(name))
        was_training = self._model.training
        self._model.eval()
        try:
            with torch.no_grad(), _uncompiled(self._model):
                glance.run(self._model)
        finally:
            self._model.train(was_training)
            for handle in handles:
                handle.remove()
            for module, recorder in recorders.items():
                module.recorder = recorder

    def warn_of(self, update: int, reading: Reading) -> None:
        """Say what is out of its range and was not so before."""
        for text in new_problems(reading, self._warned):
            self._warn(f"diagnostics at update {update:,}: {text}")


def warnings_in(records: Iterable[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """Update and text of every warning that a training gave, from the records of its log."""
    warned: set[str] = set()
    return [
        (record["update"], text)
        for record in records
        if record["event"] == "diagnostics"
        for text in new_problems(Reading.from_record(record), warned)
    ]


def new_problems(reading: Reading, known: set[str]) -> list[str]:
    """The texts of the problems whose names are not in `known`, which holds those of this reading afterwards."""
    found = dict(problems(reading))
    new = [text for name, text in found.items() if name not in known]
    known.clear()
    known.update(found)
    return new


def problems(reading: Reading) -> Iterator[tuple[str, str]]:
    """What is out of its range: a short name, and a sentence."""
    for stack in ("encoder", "decoder"):
        norms = [norm for path, norm in reading.gradient_norms.items() if path.startswith(stack)]
        if len(norms) > 1 and min(norms) > 0 and max(norms[0] / norms[-1], norms[-1] / norms[0]) > VANISHING:
            what = "vanishes" if norms[0] < norms[-1] else "explodes"
            yield (
                f"{what} {stack}",
                f"the gradient {what} towards the {stack}'s first layer ({norms[0]:.1e} there, {norms[-1]:.1e} in the "
                "last): a residual connection or a normalisation is not where it should be, or the weights run away",
            )
    path, ratio = largest(reading.update_ratios)
    if ratio > LARGEST_STEP:
        yield (
            "step",
            f"one update moved the weights of {path} by {ratio:.1%} of their size (0.1 % is usual): the learning rate "
            "is too high, or the warm-up too short",
        )
    path, size = largest(reading.activations)
    if not math.isfinite(size) or size > LARGEST_ACTIVATION:
        yield ("activation", f"the output of {path} has grown to {size:.3g}: lower the learning rate")
    if reading.heads and reading.saturated_heads > reading.heads / 2:
        yield (
            "saturated",
            f"{reading.saturated_heads} of {reading.heads} heads look at a single key each: their softmax is saturated "
            "and hardly learns; scores are too large, the learning rate was too high",
        )


def largest(values: dict[str, float]) -> tuple[str, float]:
    """The path of the largest value, and the value; something that is no number is the largest."""
    if not values:
        return "", 0.0
    path = max(values, key=lambda path: values[path] if math.isfinite(values[path]) else math.inf)
    return path, values[path]


def norm_of(tensors: Sequence[Tensor]) -> float:
    """Of all numbers in several tensors."""
    return float(torch.stack(torch._foreach_norm(list(tensors))).norm()) if tensors else 0.0


def _gradients(layer: nn.Module) -> list[Tensor]:
    return [p.grad for p in layer.parameters() if p.grad is not None]


def _note_size(reading: Reading, path: str, real: Tensor) -> Callable[..., None]:
    def note(_: nn.Module, __: object, output: Tensor) -> None:
        reading.activations[path] = float(output.float()[real].square().mean().sqrt())

    return note


def _note_heads(reading: Reading, path: str, queries: Tensor, seen: Tensor) -> Callable[[Tensor], None]:
    """The entropy of a head's weights over that of even ones, and the largest weight, as means over real queries.

    `seen` says how many keys each query may attend to; who sees one only has no choice, and doesn't count.
    """
    counts = (queries & (seen > 1)).float()[:, None]
    share = counts / counts.sum().clamp_min(1)
    greatest = seen.clamp_min(2).log()[:, None]

    def note(weights: Tensor) -> None:
        entropy = torch.special.entr(weights.float()).sum(-1) / greatest
        by_head = (entropy * share).sum((0, 2))
        peaks = (weights.float().amax(-1) * share).sum((0, 2))
        reading.entropies[path] = float(by_head.mean())
        reading.heads += len(by_head)
        reading.saturated_heads += int((peaks > SATURATED).sum())
        reading.uniform_heads += int((by_head > UNIFORM).sum())

    return note


@contextmanager
def _uncompiled(model: nn.Module) -> Iterator[None]:
    """A compiled stack would not call hooks that were added later."""
    stacks = tuple(stacks_of(model).values())
    compiled = [stack._compiled_call_impl for stack in stacks]
    try:
        for stack in stacks:
            stack._compiled_call_impl = None
        yield
    finally:
        for stack, implementation in zip(stacks, compiled, strict=True):
            stack._compiled_call_impl = implementation
