"""The shape of a model: every option in one frozen class, and the presets of the paper and of its smaller kin."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from typing import Any, Literal, get_args

from clearhead.errors import ConfigError

NormPosition = Literal["post", "pre"]
Tied = Literal["none", "output", "all"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a `Transformer`. Sections are those of "Attention Is All You Need" (Vaswani et al., 2017).

    Raises `ConfigError` when the sizes can't fit together.
    """

    source_vocab: int
    """Number of source tokens, the four control tokens included."""
    target_vocab: int
    """Number of target tokens, the four control tokens included."""
    d_model: int = 512
    """Width of every position's vector (section 3.1)."""
    d_ff: int = 2048
    """Inner width of the feed-forward network (section 3.3)."""
    n_heads: int = 8
    """Number of attention heads; divides `d_model` (section 3.2.2)."""
    encoder_layers: int = 6
    """Number of encoder layers (section 3.1)."""
    decoder_layers: int = 6
    """Number of decoder layers (section 3.1)."""
    norm_position: NormPosition = "post"
    """`post`: LayerNorm(x + Sublayer(x)), as published (section 3.1). `pre`: x + Sublayer(LayerNorm(x)), with one
    more norm behind each stack (Xiong et al., 2020, "On Layer Normalization in the Transformer Architecture")."""
    tied: Tied = "output"
    """Which embeddings are one matrix: `none`; `output`: the target embedding is the output projection (Press and
    Wolf, 2017); `all`: the source embedding too (section 3.4; needs a shared vocabulary)."""
    dropout: float = 0.1
    """On every sublayer's output and on the sum of embedding and position (section 5.4)."""
    attention_dropout: float | None = None
    """On the attention weights; `None`: as `dropout`."""
    feed_forward_dropout: float | None = None
    """Between the ReLU and the second matrix; `None`: as `dropout`."""
    norm_epsilon: float = 1e-5
    """Added to the variance inside the root of layer normalisation."""

    def __post_init__(self) -> None:
        for name in ("source_vocab", "target_vocab", "d_model", "d_ff", "n_heads", "decoder_layers"):
            self._require_whole(name, at_least=1)  # without a decoder layer no target would see its source
        self._require_whole("encoder_layers", at_least=0)
        if self.d_model % self.n_heads:
            raise ConfigError(
                f"d_model = {self.d_model} can't be split into n_heads = {self.n_heads} heads of equal width; "
                f"choose a divisor of {self.d_model}"
            )
        for name, choices in (("norm_position", NormPosition), ("tied", Tied)):
            if getattr(self, name) not in get_args(choices):
                raise ConfigError(f"{name} = {getattr(self, name)!r}: choose one of {', '.join(get_args(choices))}")
        if self.tied == "all" and self.source_vocab != self.target_vocab:
            raise ConfigError(
                f'tied = "all" needs one vocabulary for both sides, but they have {self.source_vocab} and '
                f'{self.target_vocab} tokens; set tokenizer.shared = true, or tied = "output"'
            )
        for name in ("dropout", "attention_dropout", "feed_forward_dropout"):
            rate = getattr(self, name)
            if rate is not None and not (isinstance(rate, int | float) and 0 <= rate < 1):
                raise ConfigError(f"{name} = {rate!r}: a rate of dropout is at least 0 and less than 1")
        if not (isinstance(self.norm_epsilon, int | float) and self.norm_epsilon > 0):
            raise ConfigError(f"norm_epsilon = {self.norm_epsilon!r}: has to be greater than 0")

    def _require_whole(self, name: str, *, at_least: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise ConfigError(f"{name} = {value!r}: has to be a whole number of at least {at_least}")

    @property
    def attention_dropout_rate(self) -> float:
        """The rate on the attention weights."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    @property
    def feed_forward_dropout_rate(self) -> float:
        """The rate inside the feed-forward network."""
        return self.dropout if self.feed_forward_dropout is None else self.feed_forward_dropout

    def to_dict(self) -> dict[str, Any]:
        """Every field, as JSON types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> ModelConfig:
        """The inverse of `to_dict`; a key that is no field is an error that names the nearest field."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in fields:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; the fields are {', '.join(known)}"
                raise ConfigError(f"a model has no option {key!r}{hint}")
        missing = [name for name in ("source_vocab", "target_vocab") if name not in fields]
        if missing:
            raise ConfigError(f"the model's shape lacks {' and '.join(missing)}")
        return cls(**fields)


PRESETS: dict[str, dict[str, int]] = {
    # Wu et al. (2021), "Good for Misconceived Reasons": the Transformer-Tiny for small data such as Multi30k
    "tiny": {"encoder_layers": 4, "decoder_layers": 4, "d_model": 128, "d_ff": 256, "n_heads": 4},
    # fairseq's transformer_iwslt_de_en: 100,000 to a million pairs
    "small": {"encoder_layers": 6, "decoder_layers": 6, "d_model": 512, "d_ff": 1024, "n_heads": 4},
    # the paper's table 3
    "base": {"encoder_layers": 6, "decoder_layers": 6, "d_model": 512, "d_ff": 2048, "n_heads": 8},
    "big": {"encoder_layers": 6, "decoder_layers": 6, "d_model": 1024, "d_ff": 4096, "n_heads": 16},
}
"""Named shapes, which the vocabularies complete: `ModelConfig(source_vocab=…, target_vocab=…, **PRESETS["base"])`."""
