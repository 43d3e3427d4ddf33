"""A model under examination: how to make it and how to call it, and what else belongs to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError

Kind = Literal["encoder-decoder", "decoder", "encoder"]
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class TextSide:
    """A tokenizer, and texts that it will meet."""

    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    control: frozenset[int]
    """The ids that no text should produce: padding, start, end, mask."""
    unknown: int | None = None
    texts: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Patient:
    """What the doctor has to know of a model. Only `build` is needed when the model is called in a usual way.

    The first two fields say what the model is, the next how to call it; all that follows is optional, and each of them
    lets more be examined. Token ids are `(batch, length)`, logits `(batch, length, vocabulary)`.
    """

    build: Callable[[], nn.Module]
    """Makes a new, untrained model."""
    kind: Kind = "encoder-decoder"
    """`encoder-decoder`: source and decoder input to logits; `decoder`, `encoder`: ids to logits."""
    name: str = "model"
    call: Callable[..., Tensor] | None = None
    """`call(model, source, decoder_input)`, or `call(model, ids)`: the logits. By default the model is called with the
    ids, and the logits are what comes back, its `.logits`, or its first part. Masks are made in here, if not in the
    model."""
    vocabulary: int = 100
    """Number of tokens that the model can be given …"""
    target_vocabulary: int | None = None
    """… and of those it predicts, if that is another number."""
    pad: int = 0
    bos: int = 1
    """What the decoder's input begins with when it decodes."""
    eos: int = 2
    other_control: frozenset[int] = frozenset({3})
    """Further ids that are no ordinary tokens."""
    max_length: int | None = None
    """The longest input that the model says it takes."""
    left_padding: bool = False
    """The model is to be padded on the left (as decoder-only models are, to continue several prompts)."""
    trained: nn.Module | None = None
    """The model as it is used; by default a new one."""
    tied: bool | None = None
    """Whether the output projection is meant to be the embedding."""

    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None
    """`loss(model, source, target)`: the training's loss. Targets are `BOS y … EOS PAD …`; the function makes the
    decoder's input and the labels of them, as the training does. Decoder-only: `loss(model, ids, ids)`."""
    gradient: Callable[[nn.Module, Sequence[tuple[Tensor, Tensor]]], object] | None = None
    """`gradient(model, batches)`: leaves in `.grad` what one update takes from several accumulated batches."""
    optimizer: Callable[[nn.Module], Any] | None = None
    """Makes the optimizer, or `(optimizer, scheduler)`; `step()` of the one, then of the other, make an update."""
    rate: Callable[[int], float] | None = None
    """The learning rate of update 1, 2, 3, … if `optimizer` has no scheduler."""
    warmup: int | None = None
    total_updates: int | None = None
    cached: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None
    """`cached(model, source, decoder_input)`: the logits made token by token with the cache."""
    decode: Callable[[nn.Module, Tensor, int], list[list[int]]] | None = None
    """`decode(model, source, beam_size)`: a batch's outputs as lists of ids, start and end tokens left out."""
    text_sides: dict[str, TextSide] = field(default_factory=dict)
    """Tokenizers by name (`source`, `target`)."""
    data: dict[str, Pairs] = field(default_factory=dict)
    """`train` and `valid` or `test`: pairs of texts."""
    fresh_is_given: bool = True
    """Whether `build` gives new first weights; if not, checks of untrained models don't apply."""

    @property
    def outputs(self) -> int:
        """Number of tokens that the model predicts."""
        return self.vocabulary if self.target_vocabulary is None else self.target_vocabulary

    @property
    def control(self) -> set[int]:
        """The ids that are no ordinary tokens."""
        return {self.pad, self.bos, self.eos, *self.other_control}

    @property
    def has_decoder(self) -> bool:
        """Whether the model predicts the next token from those before."""
        return self.kind != "encoder"

    def logits(self, model: nn.Module, *ids: Tensor) -> Tensor:
        """Call the model. Raises `ConfigError` when no logits of the right shape come back."""
        if self.call is not None:
            return self.call(model, *ids)
        return take_logits(model(*ids))


def take_logits(output: Any) -> Tensor:
    """The logits in what a model returns: a tensor, something with `.logits`, or a tuple that begins with them."""
    if isinstance(output, tuple | list):
        output = output[0]
    output = getattr(output, "logits", output)
    if not isinstance(output, Tensor):
        raise ConfigError(
            f"the model returns a {type(output).__name__}, not logits; say how to call it with Patient(call=…)"
        )
    return output


def guess_patient(build: Callable[[], nn.Module], *, name: str, **known: Any) -> Patient:
    """A patient of a model that is called `model(source, decoder_input)` or `model(ids)`.

    What isn't in `known` is guessed: the kind from the number of arguments that `forward` needs, the vocabulary from
    the first embedding, that of the target from what the model returns.
    """
    model = build()
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{name} returns a {type(model).__name__}, not a torch.nn.Module")
    if "kind" not in known:
        needed = [
            parameter
            for parameter in inspect.signature(model.forward).parameters.values()
            if parameter.default is inspect.Parameter.empty
            and parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        ]
        known["kind"] = "decoder" if len(needed) == 1 else "encoder-decoder"
    if "vocabulary" not in known:
        sizes = [module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)]
        if not sizes:
            raise ConfigError(f"{name} has no nn.Embedding to read the vocabulary from; give Patient(vocabulary=…)")
        known["vocabulary"] = sizes[0]
        if known["kind"] == "encoder-decoder" and "target_vocabulary" not in known:
            known["target_vocabulary"] = outputs_of(Patient(build=build, name=name, **known), model)
    return Patient(build=build, name=name, **known)


def outputs_of(patient: Patient, model: nn.Module) -> int | None:
    """The last size of what the model returns; `None` if it can't be called."""
    ids = torch.full((2, 5), max(patient.control) + 1)
    try:
        with torch.no_grad():
            return patient.logits(model, ids, ids).size(-1)
    except Exception:
        return None


def check_call(patient: Patient, model: nn.Module) -> None:
    """Call the model once. Raises `ConfigError` saying what is wrong with the adapter, before any check does."""
    ids = torch.full((2, 5), min(set(range(patient.outputs)) - patient.control, default=0))
    try:
        with torch.no_grad():
            logits = (
                patient.logits(model, ids, ids) if patient.kind == "encoder-decoder" else patient.logits(model, ids)
            )
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{patient.name} as {patient.kind} with a vocabulary of {patient.vocabulary} can't be called: "
            f"{type(error).__name__}: {error}. Say how with Patient(kind=…, call=…), or --kind, --vocabulary"
        ) from error
    if tuple(logits.shape) != (2, 5, patient.outputs):
        raise ConfigError(
            f"{patient.name} gives logits of the shape {tuple(logits.shape)} for ids of (2, 5); "
            f"(2, 5, {patient.outputs}) is needed. Say how to call it with Patient(call=…, target_vocabulary=…)"
        )
