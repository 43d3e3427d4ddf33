"""Experiments are run in their quick setting, on one thread, without disturbing other tests' random numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from clearhead.training.randomness import preserved_randomness


@pytest.fixture(autouse=True)
def own_randomness() -> Iterator[None]:
    with preserved_randomness():
        torch.manual_seed(1)
        yield
