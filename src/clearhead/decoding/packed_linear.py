"""A matrix that lies in memory a second time, as native products like it."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from clearhead import kernels

State = tuple[int, int, int]


def state_of(parameter: Tensor) -> State:
    """What changes when a parameter is written to, moved or replaced; not when somebody writes to its `.data`."""
    version = 0 if parameter.is_inference() else parameter._version
    return id(parameter), parameter.data_ptr(), version


class PackedLinear(nn.Linear):
    """An `nn.Linear` that has its weight a second time, packed for the native kernels, which compute its products."""

    def __init__(self, linear: nn.Linear, precision: str) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.training, self.precision = linear.training, precision
        self.pack()

    def pack(self) -> None:
        """Take over what the weight and the bias are now."""
        bias = None if self.bias is None else self.bias.detach()
        has = kernels.has(self.precision)  # not where a file is loaded that comes from another machine
        self.panels = kernels.PRECISIONS[self.precision](self.weight.detach(), bias) if has else None
        self.packed = self.state()

    def state(self) -> list[State]:
        """What tells whether the weight or the bias has changed."""
        return [state_of(each) for each in (self.weight, self.bias) if each is not None]

    def __getstate__(self) -> dict[str, Any]:
        """Panels hold addresses: a copy, and what is loaded from a file, packs its own."""
        return {name: value for name, value in self.__dict__.items() if name not in ("panels", "packed")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.pack()

    def latest_panels(self) -> kernels.Panels | None:
        """The panels of what the weight and the bias are now."""
        if self.packed != self.state():
            self.pack()
        return self.panels

    def best(
        self, x: Float[Tensor, "r k"], count: int, banned: Int[Tensor, " b"]
    ) -> tuple[Float[Tensor, " r"], Float[Tensor, "r c"], Int[Tensor, "r c"]] | None:
        """What one wants to know of logits (`kernels.Panels.best`), without writing them down; `None` where torch
        is to compute them."""
        panels = self.latest_panels()
        if panels is None or not kernels.take(x, *self.parameters(recurse=False)):
            return None
        return panels.best(x, min(count, self.out_features), banned)

    def forward(self, x: Tensor) -> Tensor:
        """`x @ weight.T + bias`."""
        panels = self.latest_panels()
        if panels is None or not kernels.take(x, *self.parameters(recurse=False)):
            return super().forward(x)
        return panels.product(x)
