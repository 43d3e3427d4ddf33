"""How matrices lie in memory while a model decodes."""

from __future__ import annotations

from torch import nn

from clearhead import kernels
from clearhead.decoding.native_layers import run_natively
from clearhead.decoding.packed_linear import PackedLinear
from clearhead.errors import ConfigError


def lay_out_for_few_rows(model: nn.Module, precision: str = "float32") -> None:
    """Store every matrix as products of a few rows like it best; shapes, names and results stay.

    Packed, where there are native kernels: for a few rows up to four times as fast as torch's product, for many about
    as fast. Else as `(in, out)` in memory: a product then reads it in order; with MKL 1.8 times as fast for 16 rows,
    1.4 for 64, no slower for one or for many (docs/experiments.md). Training has no use for either. A projection tied
    to an embedding becomes a matrix of its own, since rows are looked up in the embedding.

    Raises `ConfigError` for a precision that there is not, or not here.
    """
    if precision not in kernels.PRECISIONS:
        raise ConfigError(f"precision = {precision!r}: has to be one of {', '.join(kernels.PRECISIONS)}")
    linears = [(name, module) for name, module in model.named_modules() if type(module) is nn.Linear]
    packs = kernels.has(precision) and all(kernels.take(linear.weight.detach()) for _, linear in linears)
    if precision != "float32" and not packs:
        raise ConfigError(
            f"precision = {precision!r} needs an x86 CPU with {kernels.NEEDS[precision]} and a C++ compiler; "
            "leave it at float32"
        )
    for name, linear in linears:
        if packs:
            model.set_submodule(name, PackedLinear(linear, precision))
        elif linear.weight.device.type == "cpu":
            weight = linear.weight.detach().t().contiguous().t()
            linear.weight = nn.Parameter(weight, requires_grad=linear.weight.requires_grad)
    run_natively(model)
