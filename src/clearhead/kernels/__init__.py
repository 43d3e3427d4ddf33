"""Two operators of decoding on a CPU, native: products with matrices that are packed beforehand, and attention of single
queries to a cache. They compute what PyTorch's operators compute, which take their place wherever these can't be had.

Why they are here, and what they gain: docs/benchmarks.md and docs/experiments.md. `CLEARHEAD_KERNELS=off` turns them off.
"""

from __future__ import annotations

import math
from ctypes import c_void_p

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.kernels.library import library


def take(*tensors: Tensor) -> bool:
    """Whether the kernels can compute with these: float32 on a CPU, and no gradient is asked for."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return False
    alike = all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)
    return alike and library() is not None


def pack(weight: Float[Tensor, "n k"]) -> Float[Tensor, "panels k columns"]:
    """The transposed matrix in panels of so many columns as fit the registers, the last filled up with zeros."""
    columns = _library().panel_columns()
    whole = F.pad(weight, (0, 0, 0, -len(weight) % columns))
    return whole.unflatten(0, (-1, columns)).mT.contiguous()


def pack_bias(bias: Float[Tensor, " n"]) -> Float[Tensor, " n2"]:
    """As long as the panels."""
    return F.pad(bias, (0, -len(bias) % _library().panel_columns()))


def product(
    x: Float[Tensor, "*b k"], panels: Float[Tensor, "panels k columns"], bias: Float[Tensor, " n2"] | None, columns: int
) -> Float[Tensor, "*b n"]:
    """`x @ weight.T + bias`, the weight and the bias packed, `columns` being how many there were."""
    x = x.contiguous()
    depth = x.size(-1)
    out = x.new_empty(*x.shape[:-1], columns)
    _library().packed_product(
        _address(x), _address(panels), _address(bias), _address(out),
        x.numel() // depth, depth, columns, torch.get_num_threads(),
    )  # fmt: skip
    return out


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


def _address(tensor: Tensor | None) -> c_void_p:
    return c_void_p(None if tensor is None else tensor.data_ptr())
