"""Every attention of any model, however it is written, seen from below.

While `trace_attention` lasts, each operator that torch runs is looked at. Two inputs of a batched matrix product make
scores; what is multiplied, added and filled in is followed until the softmax. So it is known of each attention what it
was scaled by, what its mask did, what weights came out, and which line of code did it, whether the model uses
`scaled_dot_product_attention`, `nn.MultiheadAttention`, `einsum` or plain products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.doctor.places import calling_line

aten = torch.ops.aten


@dataclass(frozen=True)
class Masking:
    """Something done to scores that looks like a mask."""

    how: str
    """`added`, `multiplied`, or `filled in`."""
    least: float
    greatest: float
    zero_or_one: bool
    """The values are 0 and 1, both of them."""
    line: str


@dataclass(frozen=True)
class _Origin:
    """What a tensor is, as far as attention goes."""

    factor: float = 1.0
    """The product of all numbers that it was multiplied by since the last projection."""
    width: int | None = None
    """Of scores: the width of a head."""
    line: str = ""
    """Of scores: where the product was taken."""
    deviations: tuple[float, float] = (math.nan, math.nan)
    """Of scores: the standard deviations of queries and keys before they were multiplied by any number."""
    masks: tuple[Masking, ...] = ()


@dataclass(frozen=True)
class AttentionCall:
    """One softmax over scores."""

    path: str
    """The innermost module that it ran in."""
    line: str
    """Where the softmax is taken."""
    product_line: str
    scores: Tensor
    """As the softmax got them, masks included."""
    weights: Tensor
    axis: int
    """Over which the softmax was taken; -1 is the keys'."""
    factor: float
    """What the products were multiplied by, over all."""
    width: int
    """Of a head."""
    deviations: tuple[float, float]
    """Of queries and keys."""
    masks: tuple[Masking, ...]

    @property
    def place(self) -> str:
        """For reports."""
        return f"{self.line}  (in {self.path or 'the model'})"

    def by_row(self, batch: int) -> Tensor | None:
        """The weights as `(b, h, q, k)`, or `None` if they can't be cut so."""
        weights = self.weights
        if weights.dim() == 3 and weights.size(0) % batch == 0:
            weights = weights.unflatten(0, (batch, -1))
        return weights if weights.dim() == 4 and weights.size(0) == batch else None


@dataclass
class AttentionTrace:
    """The attentions of a forward pass, in their order."""

    calls: list[AttentionCall] = field(default_factory=list)


SAME = {
    "view", "_unsafe_view", "reshape", "transpose", "permute", "expand", "clone", "contiguous", "unsqueeze", "squeeze",
    "slice", "select", "split", "chunk", "unbind", "t", "_to_copy", "detach", "alias", "cat", "stack", "neg", "copy_",
    "as_strided", "split_with_sizes", "_reshape_alias", "unflatten", "narrow", "unfold", "flatten", "native_dropout",
}  # fmt: skip


class _Watcher(TorchDispatchMode):
    def __init__(self, trace: AttentionTrace, path: Callable[[], str]) -> None:
        super().__init__()
        self._trace, self._path = trace, path
        self._origins: dict[int, _Origin] = {}
        self._kept: list[Any] = []  # an address says which tensor it is only as long as the tensor lives

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        before = [self._origin(argument) for argument in args]
        output = func(*args, **kwargs)
        self._follow(name.rstrip("_") if name not in ("copy_",) else name, args, kwargs, before, output)
        return output

    def _origin(self, argument: Any) -> _Origin:
        if isinstance(argument, list | tuple) and argument and isinstance(argument[0], Tensor):
            argument = argument[0]
        return self._origins.get(id(argument), _Origin()) if isinstance(argument, Tensor) else _Origin()

    def _follow(self, name: str, args: Any, kwargs: Any, before: list[_Origin], output: Any) -> None:
        origin: _Origin | None = None
        capped = name == "tanh" and before[0].width is not None  # cap * tanh(scores / cap) are still scores
        if (name in SAME and before) or capped:
            origin = before[0]
        elif name in ("mul", "div") and len(args) > 1:
            origin = self._multiplied(name, args, before)
        elif name in ("add", "sub") and len(args) > 1:
            origin = self._added(name, args, before)
        elif name == "masked_fill":
            origin = before[0]
            if origin.width is not None:
                origin = _with_mask(origin, "filled in", torch.as_tensor(args[2]))
        elif name == "where" and len(args) == 3:
            scores, other = (1, 2) if before[1].width is not None else (2, 1)
            origin = before[scores]
            if origin.width is not None:
                origin = _with_mask(origin, "filled in", args[other])
        elif name == "bmm":
            origin = self._product(args[0], args[1], before[0], before[1])
        elif name == "baddbmm":
            origin = self._product(args[1], args[2], before[1], before[2])
            origin = replace(origin, factor=origin.factor * float(kwargs.get("alpha", 1)))
            if kwargs.get("beta", 1) != 0:
                origin = _with_mask(origin, "added", args[0])
        elif name in ("_softmax", "_safe_softmax") and before[0].width is not None:
            self._record(args, before[0], output)
        if origin is not None and origin != _Origin():
            for tensor in output if isinstance(output, list | tuple) else [output]:
                if isinstance(tensor, Tensor):
                    self._origins[id(tensor)] = origin
                    self._kept.append(tensor)

    def _multiplied(self, name: str, args: Any, before: list[_Origin]) -> _Origin:
        """Numbers count into the factor; a tensor of zeros and ones on scores is a mask."""
        (one, other), (of_one, of_other) = args[:2], before[:2]
        if not isinstance(one, Tensor) or (one.numel() == 1 and isinstance(other, Tensor) and other.numel() > 1):
            (one, other), (of_one, of_other) = (other, one), (of_other, of_one)
        if not isinstance(other, Tensor) or other.numel() == 1:
            number = float(other)
            factor = number if name == "mul" else 1 / number if number else math.inf
            return replace(of_one, factor=of_one.factor * factor)
        if of_other.width is not None and of_one.width is None:
            (one, other), (of_one, of_other) = (other, one), (of_other, of_one)
        if of_one.width is not None and of_other.width is None:
            return _with_mask(of_one, "multiplied", other)
        return replace(of_one, factor=of_one.factor * of_other.factor)

    def _added(self, name: str, args: Any, before: list[_Origin]) -> _Origin:
        (one, other), (of_one, of_other) = args[:2], before[:2]
        if of_other.width is not None and of_one.width is None:
            (one, other), (of_one, of_other) = (other, one), (of_other, of_one)
        if of_one.width is None or not isinstance(other, Tensor):
            return of_one
        return _with_mask(of_one, "added", other if name == "add" else -other)

    def _product(self, one: Tensor, other: Tensor, of_one: _Origin, of_other: _Origin) -> _Origin:
        deviations = (
            float(one.double().std()) / (of_one.factor or 1.0),
            float(other.double().std()) / (of_other.factor or 1.0),
        )
        factor = of_one.factor * of_other.factor
        return _Origin(factor, width=one.size(-1), line=calling_line(), deviations=deviations)

    def _record(self, args: Any, origin: _Origin, weights: Tensor) -> None:
        scores, axis = args[0], args[1]
        self._trace.calls.append(
            AttentionCall(
                path=self._path(),
                line=calling_line(),
                product_line=origin.line,
                scores=scores.detach(),
                weights=weights.detach(),
                axis=axis if axis < 0 else axis - scores.dim(),
                factor=origin.factor,
                width=origin.width or 0,
                deviations=origin.deviations,
                masks=origin.masks,
            )
        )


def _with_mask(origin: _Origin, how: str, values: Tensor) -> _Origin:
    values = values.detach().double()
    zero_or_one = bool(((values == 0) | (values == 1)).all()) and bool((values == 0).any() and (values == 1).any())
    masking = Masking(how, float(values.min()), float(values.max()), zero_or_one, calling_line())
    return replace(origin, masks=(*origin.masks, masking))


@contextmanager
def trace_attention(model: nn.Module) -> Iterator[AttentionTrace]:
    """Record every attention of `model` while the context lasts. Only forward passes; small batches."""
    trace, running, handles = AttentionTrace(), list[str](), []

    def leave(*_: object) -> None:
        running.pop()

    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda *_, path=path: running.append(path)))
        handles.append(module.register_forward_hook(leave, always_call=True))
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), _Watcher(trace, lambda: running[-1] if running else ""):
            yield trace
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for handle in handles:
            handle.remove()
