"""How to go on with a text: every option in one frozen class."""

from __future__ import annotations

from dataclasses import dataclass

from clearhead.errors import ConfigError

WHOLE_NUMBERS = {"max_new_tokens": 1, "beam_size": 1, "top_k": 0, "seed": 0, "batch_size": 1}
"""The options that are whole numbers, and their least values."""
RANGES = {
    "temperature": (1e-3, 1e3),
    "top_p": (1e-6, 1.0),
    "repetition_penalty": (1e-3, 1e3),
    "length_penalty": (-10, 10),
}
"""The options that are numbers, and the ranges that they lie in."""


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Greedy, beam search or sampling, and where to stop. Raises `ConfigError` for values that make no sense."""

    max_new_tokens: int = 128
    """The most tokens to add to a prompt; the positions that a model has learned limit it too."""
    beam_size: int = 1
    """Hypotheses kept open for each prompt; 1 is greedy search."""
    length_penalty: float = 0.0
    """Alpha of `score = log P / length ** alpha`, the length being that of what was added; 0 compares log P."""
    sample: bool = False
    """Draw each token at random instead of searching."""
    temperature: float = 1.0
    """Divides the logits before drawing: below 1 bolder, above 1 more varied."""
    top_k: int = 0
    """Draw from the k most likely tokens only; 0: from all."""
    top_p: float = 1.0
    """Draw from the fewest tokens whose probabilities reach p together (Holtzman et al., 2020); 1: from all."""
    repetition_penalty: float = 1.0
    """Logits of tokens that are there already are divided by it if positive, else multiplied (Keskar et al., 2019)."""
    stop: tuple[str, ...] = ()
    """What is generated ends before the first of these strings."""
    seed: int = 1
    """Of the draws. A prompt's draws depend on the seed and on the prompt, not on its neighbours."""
    batch_size: int = 16
    """Prompts gone on with side by side."""

    def __post_init__(self) -> None:
        for name, least in WHOLE_NUMBERS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name} = {value!r}: has to be a whole number of at least {least}")
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not isinstance(value, int | float) or not low <= value <= high:
                raise ConfigError(f"{name} = {value!r}: has to lie between {low:g} and {high:g}")
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            raise ConfigError(f"stop = {self.stop!r}: has to be a list of strings that aren't empty")
        if self.beam_size > 1 and self.sample:
            raise ConfigError(f"beam_size = {self.beam_size} searches and sample draws; give one of them")

    def score(self, log_probability: float, length: int) -> float:
        """What hypotheses are compared by; `length` counts the end token."""
        return log_probability / max(1, length) ** self.length_penalty
