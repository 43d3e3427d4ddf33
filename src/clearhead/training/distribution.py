"""Several processes, each with its part of an update's batches (torch.distributed is the engine)."""

from __future__ import annotations

import torch
from torch import distributed


def sum_over_processes(value: int, device: torch.device | str = "cpu") -> int:
    """The sum of one whole number over all processes; the number itself when there is only one process.

    Dividing every process's loss by the summed number of target tokens makes the sum of their gradients equal to the
    gradient of one process that has all the batches.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return value
    total = torch.tensor(value, device=device)
    distributed.all_reduce(total)
    return int(total.item())
