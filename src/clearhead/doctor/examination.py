"""What the checks share: the model in evaluation and in double precision, batches of token ids, and comparisons."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor, nn

from clearhead.doctor.patient import Patient

SOURCE_LENGTH, TARGET_LENGTH = 11, 7
"""Different primes, so that the axes of what is recorded tell what they are."""


class Examination:
    """A patient, and what is worked out about it once and used by several checks."""

    def __init__(self, patient: Patient, *, seed: int = 1) -> None:
        self.patient = patient
        self.seed = seed
        self.notes: dict[str, object] = {}

    @cached_property
    def model(self) -> nn.Module:
        """The model as it is used, in evaluation mode."""
        return (self.patient.trained or self.fresh()).eval()

    def fresh(self) -> nn.Module:
        """A new untrained model; always the same one."""
        with seeded(self.seed):
            return self.patient.build()

    @cached_property
    def exact(self) -> nn.Module:
        """`model` in float64, so that rounding is no excuse; in float32 if it can't be, or only there masks hold."""
        double, single = copy.deepcopy(self.model).double().eval(), copy.deepcopy(self.model).float().eval()
        try:
            self.look(double, *self.inputs(batch=2))
        except Exception:
            return single
        # A mask value of the least float64 overflows in a softmax that the model always takes in float32.
        return single if not self.is_finite(double) and self.is_finite(single) else double

    def is_finite(self, model: nn.Module) -> bool:
        """Whether outputs are numbers, those for a row of nothing but padding too."""
        inputs = self.inputs(batch=2)
        inputs[0][1] = self.patient.pad
        try:
            return bool(self.look(model, *inputs).isfinite().all())
        except Exception:
            return False

    @cached_property
    def tolerance(self) -> float:
        """The largest relative difference that is rounding."""
        first = next(self.exact.parameters(), torch.empty(0))
        return 1e-8 if first.dtype == torch.float64 else 2e-4

    # ---- token ids -------------------------------------------------------------------------------------------------

    @cached_property
    def ordinary(self) -> Tensor:
        """The ids of tokens that are neither padding nor any other sign, valid on both sides."""
        size = min(self.patient.vocabulary, self.patient.outputs)
        return torch.tensor([token for token in range(size) if token not in self.patient.control])

    def random_ids(self, rows: int, length: int, seed: int = 0) -> Tensor:
        """`(rows, length)` ordinary tokens, those of a row different where the vocabulary allows."""
        generator = torch.Generator().manual_seed(1000 * self.seed + seed)
        if len(self.ordinary) >= length:
            order = torch.stack([torch.randperm(len(self.ordinary), generator=generator) for _ in range(rows)])
            return self.ordinary[order[:, :length]]
        return self.ordinary[torch.randint(len(self.ordinary), (rows, length), generator=generator)]

    def inputs(self, *, batch: int = 3, source: int = SOURCE_LENGTH, target: int = TARGET_LENGTH) -> list[Tensor]:
        """What the model is called with: full rows without padding. The ids of a single stack have `source` length."""
        ids = self.random_ids(batch, source, seed=1)
        if self.patient.kind != "encoder-decoder":
            return [ids]
        ids[:, -1] = self.patient.eos
        decoder_input = self.random_ids(batch, target, seed=2)
        decoder_input[:, 0] = self.patient.bos
        return [ids, decoder_input]

    def padded_inputs(self) -> list[Tensor]:
        """As `inputs`, three rows; in row 0 the last five of the (source) ids are padding."""
        inputs = self.inputs()
        inputs[0][0, -5:] = self.patient.pad
        if self.patient.kind == "encoder-decoder":
            inputs[0][0, -6] = self.patient.eos
        return inputs

    # ---- calling ---------------------------------------------------------------------------------------------------

    def logits(self, model: nn.Module, *ids: Tensor) -> Tensor:
        """Logits `(b, t, v)` with gradients on."""
        return self.patient.logits(model, *ids)

    def look(self, model: nn.Module, *ids: Tensor) -> Tensor:
        """Logits without gradients."""
        with torch.no_grad():
            return self.logits(model, *ids)


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest absolute value; infinite if one of them is no number."""
    if found.numel() == 0:
        return 0.0
    found, expected = found.double(), expected.double()
    if not (found.isfinite().all() and expected.isfinite().all()):
        return math.inf
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-30))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers from a seed, and back to where they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def embedding_gradients(model: nn.Module, ids: Tensor) -> Iterator[list[Tensor]]:
    """Collects what embeddings give for exactly these ids, to ask for gradients by them."""
    found: list[Tensor] = []

    def keep(module: nn.Module, arguments: tuple[object, ...], output: object) -> Tensor | None:
        given = arguments[0] if arguments else None
        same = isinstance(given, Tensor) and isinstance(output, Tensor) and given.numel() == ids.numel()
        if not same or not isinstance(given, Tensor) or not isinstance(output, Tensor):
            return None
        if not (given.shape == ids.shape and torch.equal(given, ids)):
            if not (given.shape == ids.T.shape and torch.equal(given, ids.T)):
                return None
            leaf = output.detach().transpose(0, 1).requires_grad_()
            found.append(leaf)
            return leaf.transpose(0, 1)
        leaf = output.detach().requires_grad_()
        found.append(leaf)
        return leaf

    with hooked([m for m in model.modules() if isinstance(m, nn.Embedding)], keep):
        yield found


@contextmanager
def hooked(modules: Sequence[nn.Module], hook: Callable[..., object]) -> Iterator[None]:
    """A forward hook on some modules while the context lasts."""
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def stacks_of_layers(model: nn.Module) -> dict[str, list[nn.Module]]:
    """Lists of equal layers, by path: the encoder's and the decoder's."""
    stacks = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            layers = list(module)
            if layers and len({type(layer) for layer in layers}) == 1 and any(layers[0].children()):
                stacks[path] = layers
    outermost = {path for path in stacks if not any(path.startswith(f"{other}.") for other in stacks if other != path)}
    return {path: layers for path, layers in stacks.items() if path in outermost}


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Training mode, but with every rate of dropout at zero: those of modules, and numbers called so."""
    rates = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, float) and ("dropout" in name or (name == "p" and "Dropout" in type(module).__name__))
    ]
    was_training = {module: module.training for module in model.modules()}
    try:
        for module, name, _ in rates:
            setattr(module, name, 0.0)
        model.train()
        yield
    finally:
        for module, name, rate in rates:
            setattr(module, name, rate)
        for module, training in was_training.items():
            module.training = training
