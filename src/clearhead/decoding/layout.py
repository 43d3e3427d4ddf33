"""How matrices lie in memory while a model decodes."""

from __future__ import annotations

from torch import Tensor, nn

from clearhead import kernels


class PackedLinear(nn.Linear):
    """An `nn.Linear` that has its weight a second time, packed for the native kernels, which compute its products."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.pack()

    def pack(self) -> None:
        """Take over what the weight and the bias are now."""
        self.panels = kernels.pack(self.weight.detach())
        self.panel_bias = None if self.bias is None else kernels.pack_bias(self.bias.detach())
        self.packed = self._versions()

    def forward(self, x: Tensor) -> Tensor:
        """`x @ weight.T + bias`."""
        if not kernels.take(x, self.weight):
            return super().forward(x)
        if self.packed != self._versions():  # somebody has changed them
            self.pack()
        return kernels.product(x, self.panels, self.panel_bias, self.out_features)

    def _versions(self) -> tuple[int, int]:
        return self.weight._version, 0 if self.bias is None else self.bias._version


def lay_out_for_few_rows(model: nn.Module) -> None:
    """Store every matrix as products of a few rows like it best; shapes, names and results stay.

    Packed, where there are native kernels: up to four times as fast for a few rows as torch's product, and no slower for
    many. Else as `(in, out)` in memory: a product then reads it in order; with MKL 1.8 times as fast for 16 rows, 1.4
    for 64, no slower for one or for many (docs/experiments.md). Training has no use for either. A projection tied to an
    embedding becomes a matrix of its own, since rows are looked up in the embedding.
    """
    linears = [(name, module) for name, module in model.named_modules() if type(module) is nn.Linear]
    for name, linear in linears:
        if kernels.take(linear.weight.detach()):
            model.set_submodule(name, PackedLinear(linear))
        elif linear.weight.device.type == "cpu":
            weight = linear.weight.detach().t().contiguous().t()
            linear.weight = nn.Parameter(weight, requires_grad=linear.weight.requires_grad)
