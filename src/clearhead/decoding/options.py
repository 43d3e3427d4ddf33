"""How to decode: every option in one frozen class."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from clearhead.errors import ConfigError

WHOLE_NUMBERS = {
    "beam_size": 1, "n_best": 1, "max_length_extra": 0, "max_source_length": 1, "top_k": 0, "seed": 0, "batch_size": 1
}  # fmt: skip
"""The options that are whole numbers, and their least values."""
RANGES = {"length_penalty": (0, 10), "max_length_ratio": (0, 1000), "temperature": (1e-3, 1e3), "top_p": (1e-6, 1)}
"""The options that are numbers, and the ranges that they lie in."""


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """Greedy, beam search or sampling, and where to stop.

    Raises `ConfigError` for values that make no sense, before anything is decoded.
    """

    beam_size: int = 5
    """Hypotheses kept open for each sentence; 1 is greedy search."""
    n_best: int = 1
    """How many hypotheses to return for each sentence, the best first; at most `beam_size` unless sampling."""
    length_penalty: float = 0.6
    """The alpha of `score = log P / ((5 + length) / 6) ** alpha` (Wu et al., 2016, equation 14; the paper's section 6.1
    uses 0.6). 0 compares plain log-probabilities, which favours short outputs. The end token counts once."""
    max_length_ratio: float = 3.0
    max_length_extra: int = 50
    """An output has at most `ratio * source length + extra` tokens; one that is cut there says so."""
    sample: bool = False
    """Draw each token at random instead of searching; `n_best` draws for each sentence."""
    temperature: float = 1.0
    """Divides the logits before drawing: below 1 bolder, above 1 more varied."""
    top_k: int = 0
    """Draw from the k most likely tokens only; 0: from all."""
    top_p: float = 1.0
    """Draw from the fewest tokens whose probabilities reach p together (Holtzman et al., 2020); 1: from all."""
    seed: int = 1
    """Of the draws. A sentence's draws depend on the seed and on the sentence, not on its neighbours."""
    max_source_length: int = 1024
    """A source with more tokens is cut, and its output says so: attention's cost grows with the square."""
    batch_size: int = 320
    """Hypotheses decoded side by side; with a beam of 5 a fifth as many sentences. Fewer rows make slower products."""

    def __post_init__(self) -> None:
        for name, least in WHOLE_NUMBERS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name} = {value!r}: has to be a whole number of at least {least}")
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not isinstance(value, int | float) or not low <= value <= high:
                raise ConfigError(f"{name} = {value!r}: has to lie between {low:g} and {high:g}")
        if self.n_best > self.beam_size and not self.sample:
            raise ConfigError(
                f"n_best = {self.n_best} asks for more hypotheses than beam_size = {self.beam_size} keeps; "
                f"use a beam of {self.n_best}, or sample"
            )

    @property
    def hypotheses(self) -> int:
        """Rows that a sentence takes in the decoder's batch."""
        return self.n_best if self.sample else self.beam_size

    def length_limit(self, source_length: int) -> int:
        """The most tokens that an output of this source may have, the end token not counted."""
        return max(1, int(self.max_length_ratio * source_length) + self.max_length_extra)

    def score(self, log_probability: float, length: int) -> float:
        """What hypotheses are compared by; `length` counts the end token."""
        return float(log_probability / ((5 + length) / 6) ** self.length_penalty)


def changed(options: DecodingOptions, changes: dict[str, Any]) -> DecodingOptions:
    """The options with some fields changed; `n_best` alone widens the beam if it has to.

    Raises `ConfigError` for a field that there is not, or a value that makes no sense.
    """
    known = [field.name for field in dataclasses.fields(DecodingOptions)]
    for name in changes:
        if name not in known:
            raise ConfigError(f"decoding has no option {name!r}; the options are {', '.join(known)}")
    wanted = changes.get("n_best")
    if isinstance(wanted, int) and "beam_size" not in changes and not changes.get("sample", options.sample):
        changes = {**changes, "beam_size": max(options.beam_size, wanted)}
    return dataclasses.replace(options, **changes)
