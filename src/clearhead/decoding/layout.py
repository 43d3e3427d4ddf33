"""How matrices lie in memory while a model decodes."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from clearhead import kernels
from clearhead.errors import ConfigError


class PackedLinear(nn.Linear):
    """An `nn.Linear` that has its weight a second time, packed for the native kernels, which compute its products."""

    def __init__(self, linear: nn.Linear, precision: str) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.precision = precision
        self.pack()

    def pack(self) -> None:
        """Take over what the weight and the bias are now."""
        bias = None if self.bias is None else self.bias.detach()
        has = kernels.has(self.precision)  # not where a file is loaded that comes from another machine
        self.panels = kernels.PRECISIONS[self.precision](self.weight.detach(), bias) if has else None
        self.sources = [each for each in (self.weight, self.bias) if each is not None]
        self.packed = [each._version for each in self.sources]

    def __getstate__(self) -> dict[str, Any]:
        """Panels hold addresses: a copy, and what is loaded from a file, packs its own."""
        return {name: value for name, value in self.__dict__.items() if name not in ("panels", "sources", "packed")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.pack()

    def forward(self, x: Tensor) -> Tensor:
        """`x @ weight.T + bias`."""
        if self.packed != [each._version for each in self.sources]:  # somebody has changed them
            self.pack()
        if self.panels is None or not kernels.take(x, self.sources[0]):
            return super().forward(x)
        return self.panels.product(x)


def lay_out_for_few_rows(model: nn.Module, precision: str = "float32") -> None:
    """Store every matrix as products of a few rows like it best; shapes, names and results stay.

    Packed, where there are native kernels: for a few rows up to four times as fast as torch's product, for many about
    as fast. Else as `(in, out)` in memory: a product then reads it in order; with MKL 1.8 times as fast for 16 rows,
    1.4 for 64, no slower for one or for many (docs/experiments.md). Training has no use for either. A projection tied
    to an embedding becomes a matrix of its own, since rows are looked up in the embedding.

    Raises `ConfigError` for a precision that there is not, or not here.
    """
    if precision not in kernels.PRECISIONS:
        raise ConfigError(f"precision = {precision!r}: has to be {' or '.join(kernels.PRECISIONS)}")
    linears = [(name, module) for name, module in model.named_modules() if type(module) is nn.Linear]
    packs = kernels.has(precision) and all(kernels.take(linear.weight.detach()) for _, linear in linears)
    if precision != "float32" and not packs:
        raise ConfigError(
            f"precision = {precision!r} needs an x86 CPU with AVX2 and a C++ compiler; leave it at float32"
        )
    for name, linear in linears:
        if packs:
            model.set_submodule(name, PackedLinear(linear, precision))
        elif linear.weight.device.type == "cpu":
            weight = linear.weight.detach().t().contiguous().t()
            linear.weight = nn.Parameter(weight, requires_grad=linear.weight.requires_grad)
