"""Learning rates: one pure function of the update's number, so a resumed run has nothing to restore."""

from __future__ import annotations

import math
from typing import Literal

ScheduleKind = Literal["inverse_sqrt", "cosine", "constant", "paper"]


def learning_rate(
    kind: ScheduleKind,
    update: int,
    *,
    peak: float,
    warmup: int,
    total: int | None = None,
    floor: float = 0.0,
    d_model: int = 512,
) -> float:
    """The rate of update 1, 2, 3, …; greater than 0 from the first one on.

    Until update `warmup` the rate rises in equal steps to `peak`; then
    `constant` stays, `inverse_sqrt` falls as `peak * sqrt(warmup / update)`, and `cosine` falls along half a wave, so
    that it would reach `floor` one update after `total`. `paper` is section 5.3's
    `d_model**-0.5 * min(update**-0.5, update * warmup**-1.5)`, which is `inverse_sqrt` with a peak of its own.
    A warm-up of 0 is one of 1: update 1 has the peak rate. A warm-up that is as long as the run only ever rises.
    """
    warmup = max(warmup, 1)
    if kind == "paper":
        return d_model**-0.5 * min(update**-0.5, update * warmup**-1.5)
    if update <= warmup:
        return peak * update / warmup
    match kind:
        case "constant":
            return peak
        case "inverse_sqrt":
            return peak * math.sqrt(warmup / update)
        case "cosine":
            if total is None:
                raise ValueError("a cosine schedule has to know its last update")
            done = min(1.0, (update - warmup) / max(1, total - warmup + 1))
            return floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2
