"""Operators of decoding on a CPU, native. They compute what PyTorch's operators compute, which take their place
wherever these can't be had.

Why they are here and what they gain: docs/benchmarks.md, docs/experiments.md. `CLEARHEAD_KERNELS=off` turns them off.
"""

from __future__ import annotations

from ctypes import byref
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.kernels.library import Angles, Entries, Heads, Layer, Matrix, Norm, Rows, library


def take(*tensors: Tensor) -> bool:
    """Whether the kernels can compute with these: float32 on a CPU, and no gradient is asked for."""
    asks = torch.is_grad_enabled()
    for tensor in tensors:
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu" or (asks and tensor.requires_grad):
            return False
    return library() is not None


class Panels:
    """A matrix, and a bias, ready for products in float32: transposed, in panels of as many columns as fit registers.

    The last panel is filled up with zeros.
    """

    steps: Tensor | None = None
    sums: Tensor | None = None

    def __init__(self, weight: Float[Tensor, "n k"], bias: Float[Tensor, " n"] | None) -> None:
        self.bias = None if bias is None else whole_panels(bias)
        self.panels = self.pack(whole_panels(weight))
        addresses = map(_address, (self.panels, self.steps, self.sums, self.bias))
        self.matrix = Matrix(*addresses, *weight.shape)
        self.multiply = partial(_library().packed_product, byref(self.matrix))

    def pack(self, weight: Float[Tensor, "n2 k"]) -> Tensor:
        """The matrix in panels, `(panels, k, columns of a panel)`."""
        return weight.unflatten(0, (-1, _library().panel_columns())).mT.contiguous()

    def product(self, x: Float[Tensor, "*b k"]) -> Float[Tensor, "*b n"]:
        """`x @ weight.T + bias`."""
        *leading, depth = x.shape
        if depth != self.matrix.depth:
            raise ValueError(f"rows of {depth} numbers, but the matrix takes {self.matrix.depth}")
        x, out = x.contiguous(), x.new_empty(*leading, self.matrix.columns)
        self.multiply(x.data_ptr(), out.data_ptr(), x.numel() // depth, torch.get_num_threads())
        return out

    def best(
        self, x: Float[Tensor, "r k"], count: int, banned: Int[Tensor, " b"]
    ) -> tuple[Float[Tensor, " r"], Float[Tensor, "r c"], Int[Tensor, "r c"]]:
        """Of the logits `x @ weight.T + bias`: the logarithm of the sum of their exponentials, and the `count` largest,
        the largest first, with their places; those that are `banned` count as minus infinity, and only there."""
        x, normalizers, best = x.contiguous(), x.new_empty(len(x)), x.new_empty(len(x), count)
        places = torch.empty(len(x), count, dtype=torch.long)
        _library().best_logits(
            byref(self.matrix), x.data_ptr(), banned.data_ptr(), len(banned), normalizers.data_ptr(), best.data_ptr(),
            places.data_ptr(), len(x), count, torch.get_num_threads(),
        )  # fmt: skip
        return normalizers, best, places


class Int16Panels(Panels):
    """The same in 16-bit integers, 1.4 times as fast with AVX2 and half the memory (docs/experiments.md).

    Each row of `x` and of the weight is rounded to multiples of a step of its own, a root mean square of 1,000 to 2,000
    steps: as fine as may be if no sum of products is to leave 32 bits. The result differs from float32's by about
    3e-4 of its size; it does not depend on the other rows.
    """

    def pack(self, weight: Float[Tensor, "n2 k"]) -> Tensor:
        """The matrix, rounded, in panels, `(panels, k / 2, columns of a panel, 2)`."""
        weight = F.pad(weight, (0, weight.size(1) % 2)).contiguous()
        integers = torch.empty_like(weight, dtype=torch.int16)
        self.steps = weight.new_empty(len(weight))
        _library().quantize_rows(_address(weight), _address(integers), _address(self.steps), *weight.shape)
        panels = integers.view(-1, _library().panel_columns(), weight.size(1) // 2, 2)
        return panels.transpose(1, 2).contiguous()


class Int8Panels(Panels):
    """The same in 8-bit integers: a quarter of the memory; where the processor multiplies four at a time (AVX512-VNNI).

    Each row of the weight is rounded to 127 steps on either side of zero, each row of `x` to the 256 from its least to
    its largest number.
    """

    def pack(self, weight: Float[Tensor, "n2 k"]) -> Tensor:
        """The matrix, rounded, in panels, `(panels, k / 4, columns of a panel, 4)`."""
        weight = F.pad(weight, (0, -weight.size(1) % 4))
        self.steps = (weight.abs().amax(1) / 127).contiguous()
        integers = (weight / self.steps.clamp(min=torch.finfo(torch.float32).tiny)[:, None]).round()
        self.sums = integers.sum(1).int()
        panels = integers.to(torch.int8).view(-1, _library().panel_columns(), weight.size(1) // 4, 4)
        return panels.transpose(1, 2).contiguous()


def whole_panels(rows: Float[Tensor, "n ..."]) -> Float[Tensor, "n2 ..."]:
    """Zeros behind the rows, up to whole panels."""
    missing = -len(rows) % _library().panel_columns()
    if not missing:  # a copy less: freed copies leave holes, 40 % of the size of a large model
        return rows.contiguous()
    return torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]).contiguous()


PRECISIONS = {"float32": Panels, "int16": Int16Panels, "int8": Int8Panels}
NEEDS = {"int16": "AVX2", "int8": "AVX512-VNNI"}
"""What a processor has to be able to do."""


def has(precision: str) -> bool:
    """Whether this machine has kernels of a precision."""
    found = library()
    return found is not None and (precision == "float32" or bool(getattr(found, f"has_{precision}")()))


class NativeLayer:
    """An encoder or decoder layer in one call (layers.h).

    Args:
        panels: its packed matrices by name (`Layer`); those that it lacks are left out.
        norms: gain, bias (none: RMSNorm) and epsilon of the norm of each sublayer.
        heads: how many of queries, how many of keys, and their width.
        activation: one of `ACTIVATIONS`.
        pre_norm: where the norms stand.
    """

    ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")

    def __init__(
        self,
        panels: dict[str, Panels],
        norms: list[tuple[Float[Tensor, " m"], Float[Tensor, " m"] | None, float]],
        *,
        heads: tuple[int, int, int],
        activation: str,
        pre_norm: bool,
    ) -> None:
        self.alive = panels, norms  # the structure below holds addresses
        self.layer = Layer(
            shape=Heads(*heads),
            norms=tuple(Norm(_address(gamma), _address(beta), epsilon) for gamma, beta, epsilon in norms),
            activation=self.ACTIVATIONS.index(activation), pre_norm=pre_norm,
            **{name: packed.matrix for name, packed in panels.items()},
        )  # fmt: skip
        self.call = partial(_library().run_layer, byref(self.layer))

    def step(
        self,
        x: Float[Tensor, "r m"],
        past: tuple[Float[Tensor, "b h n d"], Float[Tensor, "b h n d"], Bool[Tensor, "b 1 _ n"] | None],
        memory: tuple[Float[Tensor, "b h s d"], Float[Tensor, "b h s d"], Bool[Tensor, "b 1 1 s"] | None],
        *,
        places: Int[Tensor, " r"] | None,
        beams: int,
        rotation: tuple[Tensor, Tensor] | None = None,
    ) -> Float[Tensor, "r m"]:
        """The layer's output for each row; the last `beams` entries of the past are written.

        Row `i` is hypothesis `places[i]` of the grid `(b, beams)`, without `places` hypothesis `i`. A mask is a
        sentence's or each hypothesis' own. `rotation` is the cosine and the sine of each row's angles, or of all.
        """
        self.require_width(x)
        x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        past, memory = (*past[:2], _readable(past[2])), (*memory[:2], _readable(memory[2]))
        rows = Rows(_address(places), len(x), len(past[0]), beams)
        angles = Angles(None, None, 0)
        if rotation is not None:
            cosine, sine = (each.reshape(-1, each.size(-1)).contiguous() for each in rotation)
            angles = Angles(cosine.data_ptr(), sine.data_ptr(), cosine.size(1) if len(cosine) > 1 else 0)
        self.call(
            x.data_ptr(), out.data_ptr(), byref(rows), byref(_entries(*past)), byref(_entries(*memory)),
            byref(angles), None, torch.get_num_threads(),
        )  # fmt: skip
        return out

    def require_width(self, x: Tensor) -> None:
        """Refuse rows that would be read beyond their end."""
        if x.size(-1) != self.layer.outer.columns:
            raise ValueError(f"rows of {x.size(-1)} numbers, but the layer is {self.layer.outer.columns} wide")

    def read(self, x: Float[Tensor, "b s m"], mask: Bool[Tensor, "b 1 1 s"] | None) -> Float[Tensor, "b s m"]:
        """The layer's output for whole sentences, each position of which sees all that the mask allows."""
        self.require_width(x)
        x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        sentences, length, _ = x.shape
        if mask is not None:
            mask = mask.expand(sentences, 1, 1, length).contiguous()
        rows, angles = Rows(None, sentences * length, sentences, length), Angles(None, None, 0)
        self.call(
            x.data_ptr(), out.data_ptr(), byref(rows), None, None, byref(angles), _address(mask),
            torch.get_num_threads(),
        )  # fmt: skip
        return out


def _entries(key: Tensor, value: Tensor, mask: Tensor | None) -> Entries:
    if key.stride() != value.stride() or key.stride(3) != 1:
        raise ValueError("keys and values have to lie alike, each one's features side by side")
    if mask is not None and mask.size(3) != key.size(2):
        raise ValueError(f"a mask of {mask.size(3)} entries for {key.size(2)}")
    mask_strides = (0, 0) if mask is None else (mask.stride(0), mask.stride(2) if mask.size(2) > 1 else 0)
    return Entries(key.data_ptr(), value.data_ptr(), _address(mask), key.size(2), *key.stride()[:3], *mask_strides)


def _readable(mask: Tensor | None) -> Tensor | None:
    return mask if mask is None or mask.stride(3) == 1 else mask.contiguous()


def _library():  # type: ignore[no-untyped-def]
    found = library()
    if found is None:
        raise RuntimeError("there are no native kernels on this machine")
    return found


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
