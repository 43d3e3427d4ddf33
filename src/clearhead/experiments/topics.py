"""The list of experiments, in the order in which the textbook makes its claims."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from clearhead.errors import ConfigError
from clearhead.experiments.result import Effort, Result
from clearhead.training.randomness import preserved_randomness

MODULES = (
    *("scaling", "heads", "feed_forward", "positions", "normalization", "residual", "masks", "causality"),
    *("recurrence", "cost", "dropout", "warmup", "label_smoothing", "beam"),
)


@dataclass(frozen=True)
class Topic:
    """One claim and the experiment behind it."""

    name: str
    title: str
    claim: str
    formula: str
    measure: Callable[[Effort, int], Result]

    def run(self, effort: Effort = Effort.NORMAL, seed: int = 1) -> Result:
        """Do the experiment. The caller's random numbers stay what they would have been without."""
        with preserved_randomness():
            torch.manual_seed(seed)
            return self.measure(effort, seed)


def all_topics() -> list[Topic]:
    """Every topic."""
    return [_load(module) for module in MODULES]


def find_topic(name: str) -> Topic:
    """The topic of a name such as `feed-forward`. Raises `ConfigError` for one that there is not."""
    module = name.strip().lower().replace("-", "_")
    if module not in MODULES:
        names = [known.replace("_", "-") for known in MODULES]
        near = difflib.get_close_matches(name.lower(), names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the topics are {', '.join(names)}"
        raise ConfigError(f"there is no topic {name!r}; {hint}")
    return _load(module)


def _load(module: str) -> Topic:
    found = importlib.import_module(f"clearhead.experiments.{module}")
    return Topic(module.replace("_", "-"), found.TITLE, found.CLAIM, found.FORMULA, found.measure)
