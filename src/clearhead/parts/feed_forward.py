"""The position-wise feed-forward network (section 3.3)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from clearhead.parts.dropout import Dropout


class PositionwiseFeedForward(nn.Module):
    """`FFN(x) = max(0, x W_1 + b_1) W_2 + b_2`, the same at every position (section 3.3, equation 2).

    Attention only averages; this is where a layer's non-linear capacity lies. Dropout falls between the two matrices.
    """

    def __init__(self, d_model: int, d_ff: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*b m"]) -> Float[Tensor, "*b m"]:
        """Transform every position by itself."""
        return self.w_2(self.dropout(self.w_1(x).relu()))
