"""The random numbers of a training: everything that draws (weights, dropout) draws from torch's own generators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def random_tensors() -> dict[str, Tensor]:
    """The state of torch's generators: of the CPU and, if they are in use, of the GPUs."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states |= {f"cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def restore_random_tensors(states: dict[str, Tensor]) -> None:
    """The inverse of `random_tensors`; states of GPUs that this machine lacks are left out."""
    torch.set_rng_state(states["cpu"])
    for name, state in states.items():
        if name.startswith("cuda.") and (gpu := int(name.removeprefix("cuda."))) < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, gpu)


@contextmanager
def preserved_randomness() -> Iterator[None]:
    """Whatever is drawn inside, the training draws what it would have drawn without."""
    states = random_tensors()
    try:
        yield
    finally:
        restore_random_tensors(states)
