"""Operators of decoding on a CPU, native: products with matrices that are packed beforehand, and attention of single
queries to a cache. They compute what PyTorch's operators compute, which take their place wherever these can't be had.

Why they are here and what they gain: docs/benchmarks.md, docs/experiments.md. `CLEARHEAD_KERNELS=off` turns them off.
"""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.kernels.library import library


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

    def __init__(self, weight: Float[Tensor, "n k"], bias: Float[Tensor, " n"] | None) -> None:
        self.columns = len(weight)
        self.bias = None if bias is None else whole_panels(bias)
        self.pack(whole_panels(weight))

    def pack(self, weight: Float[Tensor, "n2 k"]) -> None:
        """Bring the matrix into panels, `(panels, k, columns of a panel)`."""
        self.panels = weight.unflatten(0, (-1, _library().panel_columns())).mT.contiguous()
        self.multiply = partial(_library().packed_product, _address(self.panels), _address(self.bias))

    def product(self, x: Float[Tensor, "*b k"]) -> Float[Tensor, "*b n"]:
        """`x @ weight.T + bias`."""
        *leading, depth = x.shape
        x, out = x.contiguous(), x.new_empty(*leading, self.columns)
        self.multiply(
            x.data_ptr(), out.data_ptr(), x.numel() // depth, depth, self.columns, torch.get_num_threads()
        )  # fmt: skip
        return out


class Int16Panels(Panels):
    """The same in 16-bit integers, 1.4 times as fast with AVX2 and half the memory (docs/experiments.md).

    Each row of `x` and of the weight is rounded to multiples of a step of its own, a root mean square of 1,000 to 2,000
    steps: as fine as may be if no sum of products is to leave 32 bits. The result differs from float32's by about
    3e-4 of its size; it does not depend on the other rows.
    """

    def pack(self, weight: Float[Tensor, "n2 k"]) -> None:
        """Round the matrix, and bring it into panels, `(panels, k / 2, columns of a panel, 2)`."""
        depth = weight.size(1)
        weight = F.pad(weight, (0, depth % 2)).contiguous()
        integers = torch.empty_like(weight, dtype=torch.int16)
        self.steps = weight.new_empty(len(weight))
        _library().quantize_rows(_address(weight), _address(integers), _address(self.steps), *weight.shape)
        panels = integers.view(-1, _library().panel_columns(), weight.size(1) // 2, 2)
        self.panels = panels.transpose(1, 2).contiguous()
        addresses = map(_address, (self.panels, self.steps, self.bias))
        self.multiply = partial(_library().integer_product, *addresses)

    def product(self, x: Float[Tensor, "*b k"]) -> Float[Tensor, "*b n"]:
        """`x @ weight.T + bias`, nearly."""
        return super().product(F.pad(x, (0, 1)) if x.size(-1) % 2 else x)


def whole_panels(rows: Float[Tensor, "n ..."]) -> Float[Tensor, "n2 ..."]:
    """Zeros behind the rows, up to whole panels."""
    missing = -len(rows) % _library().panel_columns()
    if not missing:  # a copy less: freed copies leave holes, 40 % of the size of a large model
        return rows.contiguous()
    return torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]).contiguous()


PRECISIONS = {"float32": Panels, "int16": Int16Panels}


def has(precision: str) -> bool:
    """Whether this machine has kernels of a precision."""
    found = library()
    return found is not None and (precision == "float32" or bool(found.has_int16()))


def can_attend(key: Float[Tensor, "b h n d"], value: Float[Tensor, "b h n d"]) -> bool:
    """Whether an entry's heads lie side by side in memory, keys and values alike."""
    return key.stride() == value.stride() and key.stride(3) == 1 and key.stride(1) == key.size(3)


def attend(
    query: Float[Tensor, "r m"],
    key: Float[Tensor, "b h n d"],
    value: Float[Tensor, "b h n d"],
    mask: Bool[Tensor, "b 1 _ n"] | None,
    *,
    places: Int[Tensor, " r"] | None,
    beams: int,
) -> Float[Tensor, "r m"]:
    """Equation 1 for one query a row, `m / d` heads joined; grouped if there are fewer key heads.

    Row `i` is hypothesis `places[i]` of the grid `(b, beams)`, without `places` hypothesis `i`. The mask is a
    sentence's or each hypothesis' own. A query that may look at nothing gets zeros.
    """
    query = query.contiguous()
    out = torch.empty_like(query)
    if mask is not None and mask.stride(3) != 1:
        mask = mask.contiguous()
    mask_strides = (0, 0) if mask is None else (mask.stride(0), mask.stride(2) if mask.size(2) > 1 else 0)
    width = key.size(3)
    _library().attend(
        _address(query), _address(key), _address(value), _address(mask), _address(places), _address(out),
        len(query), beams, key.size(2), query.size(1) // width, key.size(1), width,
        key.stride(0), key.stride(2), *mask_strides, 1 / math.sqrt(width), torch.get_num_threads(),
    )  # fmt: skip
    return out


def _library():  # type: ignore[no-untyped-def]
    found = library()
    if found is None:
        raise RuntimeError("there are no native kernels on this machine")
    return found


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
