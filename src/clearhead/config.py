"""The shape of a model: every option in one frozen class, the presets of the paper and of its smaller kin, and what
other families of models changed."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from typing import Any, Literal, get_args

from clearhead.errors import ConfigError

Architecture = Literal["encoder-decoder", "decoder", "encoder"]
NormPosition = Literal["post", "pre"]
Norm = Literal["layer", "rms"]
Tied = Literal["none", "output", "all"]
Embedding = Literal["scaled", "plain", "normed"]
Positions = Literal["sinusoids", "sinusoids_halves", "learned", "rotary"]
FeedForward = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu"]
Heads = Literal["none", "pooler", "masked_token", "both"]

CHOICES = {
    "architecture": Architecture, "norm_position": NormPosition, "norm": Norm, "tied": Tied, "embedding": Embedding,
    "positions": Positions, "feed_forward": FeedForward, "heads": Heads,
}  # fmt: skip
"""The fields that are one of a few words."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The shape of a `Transformer`, or of a variant of it.

    Sections are those of "Attention Is All You Need" (Vaswani et al., 2017).

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

    # What GPT, BERT, LLaMA and Marian changed; the defaults are the paper's own.
    architecture: Architecture = "encoder-decoder"
    """`encoder-decoder`, as published; `decoder`: no source, so no encoder and no cross-attention (GPT, Radford et al.,
    2018); `encoder`: no target (BERT, Devlin et al., 2019). The last two have one vocabulary."""
    embedding: Embedding = "scaled"
    """`scaled`: times the root of `d_model` (section 3.4); `plain`: not (GPT); `normed`: layer normalisation of the sum
    of all embeddings instead (BERT)."""
    positions: Positions = "sinusoids"
    """`sinusoids`: sine and cosine take turns (section 3.5); `sinusoids_halves`: all sines, then all cosines (Marian);
    `learned`: a table (Gehring et al., 2017; GPT, BERT); `rotary`: queries and keys are turned by an angle that grows
    with the position (Su et al., 2021; LLaMA)."""
    max_positions: int | None = None
    """The most positions there are: the length of a learned table, the context that a model was trained on."""
    rotary_base: float = 10_000.0
    """The slowest of the rotary angles turns once in about `2 pi * base` positions (LLaMA 3: 500,000)."""
    rotary_scaling: dict[str, Any] | None = None
    """Slower angles for longer texts: `{"kind": "linear", "factor": 4}` divides all (Chen et al., 2023); `{"kind":
    "llama3", "factor", "low_frequency_factor", "high_frequency_factor", "original_positions"}` only slow ones."""
    norm: Norm = "layer"
    """`layer` (Ba et al., 2016) or `rms`: no mean, no bias (Zhang and Sennrich, 2019; LLaMA)."""
    feed_forward: FeedForward = "relu"
    """What lies between the two matrices: `relu` (section 3.3), `gelu` (Hendrycks and Gimpel, 2016; BERT), `gelu_tanh`:
    its approximation (GPT-2), `silu`, also called swish (Marian), `swiglu`: silu, times a third matrix (Shazeer,
    2020; LLaMA)."""
    kv_heads: int | None = None
    """Heads of keys and values, each shared by `n_heads / kv_heads` heads of queries (Ainslie et al., 2023; LLaMA 2);
    `None`: as many as `n_heads`."""
    biases: bool = True
    """Whether the matrices of attention and feed-forward have biases (LLaMA: none)."""
    segments: int = 0
    """Kinds of segments, each with a learned vector that is added to its tokens (BERT: 2)."""
    output_bias: bool = False
    """A bias for each token of the vocabulary on the logits (Marian)."""
    heads: Heads = "none"
    """What stands on an encoder: `masked_token`: which token was masked; `pooler`: the first position through a matrix
    and tanh; `both` (BERT)."""

    def __post_init__(self) -> None:
        for name, least in LEAST[self.architecture if self.architecture in LEAST else "encoder-decoder"].items():
            self._require_whole(name, at_least=least)
        if self.kv_heads is not None:
            self._require_whole("kv_heads", at_least=1)
        if self.max_positions is not None:
            self._require_whole("max_positions", at_least=1)
        self._require_whole("segments", at_least=0)
        if self.d_model % self.n_heads:
            raise ConfigError(
                f"d_model = {self.d_model} can't be split into n_heads = {self.n_heads} heads of equal width; "
                f"choose a divisor of {self.d_model}"
            )
        for name, choices in CHOICES.items():
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
        self._require_what_there_is()
        self._require_positions()

    def _require_what_there_is(self) -> None:
        """Refuse options that no model of this architecture has."""
        one_sided = self.architecture != "encoder-decoder"
        if one_sided and self.source_vocab != self.target_vocab:
            raise ConfigError(
                f"a model with one side has one vocabulary, but source_vocab = {self.source_vocab} "
                f"and target_vocab = {self.target_vocab}"
            )
        for name in ("encoder_layers", "decoder_layers"):
            if getattr(self, name) and LEAST[self.architecture].get(name) is None:
                raise ConfigError(f"{name} = {getattr(self, name)}: architecture {self.architecture!r} has none; set 0")
        if self.embedding == "normed" and self.architecture != "encoder":
            raise ConfigError("embedding = 'normed': only a model of architecture 'encoder' has that")
        for name, owner in OWNERS.items():
            if self.architecture != owner and getattr(self, name) != DEFAULTS[name]:
                raise ConfigError(f"{name} = {getattr(self, name)!r}: only a model of architecture {owner!r} has that")
        if self.kv_heads is not None and self.n_heads % self.kv_heads:
            raise ConfigError(
                f"n_heads = {self.n_heads} can't share kv_heads = {self.kv_heads} evenly; choose a divisor"
            )

    def _require_positions(self) -> None:
        """Refuse positions that can't be made."""
        if self.positions not in POSITIONS_OF[self.architecture]:
            possible = ", ".join(POSITIONS_OF[self.architecture])
            raise ConfigError(
                f"positions = {self.positions!r}: a model of architecture {self.architecture!r} has one of {possible}"
            )
        if self.positions == "learned" and self.max_positions is None:
            raise ConfigError('positions = "learned" needs max_positions: how many to learn')
        if self.positions != "rotary":
            return
        if self.d_model // self.n_heads % 2:
            raise ConfigError(f"rotary positions turn pairs of features, but a head has {self.d_model // self.n_heads}")
        if not (isinstance(self.rotary_base, int | float) and self.rotary_base > 1):
            raise ConfigError(f"rotary_base = {self.rotary_base!r}: has to be greater than 1")
        scaling = self.rotary_scaling
        if scaling is None:
            return
        wanted = ROTARY_SCALINGS.get(scaling.get("kind", ""))
        if wanted is None or set(scaling) != {"kind", *wanted}:
            known = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in ROTARY_SCALINGS.items())
            raise ConfigError(f"rotary_scaling = {scaling!r}: the kinds and their numbers are {known}")
        for name in wanted:
            if not (isinstance(scaling[name], int | float) and scaling[name] > 0):
                raise ConfigError(f"rotary_scaling.{name} = {scaling[name]!r}: has to be greater than 0")

    def _require_whole(self, name: str, *, at_least: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise ConfigError(f"{name} = {value!r}: has to be a whole number of at least {at_least}")

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values."""
        return self.n_heads if self.kv_heads is None else self.kv_heads

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


SIZES = {"source_vocab": 1, "target_vocab": 1, "d_model": 1, "d_ff": 1, "n_heads": 1}
LEAST: dict[str, dict[str, int]] = {
    # Without a decoder layer no target would see its source; without an encoder layer it sees the embeddings.
    "encoder-decoder": {**SIZES, "encoder_layers": 0, "decoder_layers": 1},
    "decoder": {**SIZES, "decoder_layers": 1},
    "encoder": {**SIZES, "encoder_layers": 1},
}
"""The whole numbers of each architecture, and their least values."""
POSITIONS_OF: dict[str, tuple[str, ...]] = {
    "encoder-decoder": ("sinusoids", "sinusoids_halves"),
    "decoder": ("sinusoids", "sinusoids_halves", "learned", "rotary"),
    "encoder": ("sinusoids", "sinusoids_halves", "learned"),
}
"""The positions that each architecture can have."""
OWNERS = {"kv_heads": "decoder", "biases": "decoder", "segments": "encoder", "heads": "encoder"}
"""Options that only one architecture has."""
DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(ModelConfig)}
"""The paper's own value of every field but the vocabularies."""
ROTARY_SCALINGS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_frequency_factor", "high_frequency_factor", "original_positions"),
}
"""The kinds of rotary scaling, and the numbers that each needs."""

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

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {
        "architecture": "decoder",
        "encoder_layers": 0,
        "positions": "learned",
        "max_positions": 1024,
        "embedding": "plain",
        "norm_position": "pre",
        "feed_forward": "gelu_tanh",
    },
    "llama": {
        "architecture": "decoder",
        "encoder_layers": 0,
        "positions": "rotary",
        "embedding": "plain",
        "norm_position": "pre",
        "norm": "rms",
        "feed_forward": "swiglu",
        "biases": False,
        "tied": "none",
        "dropout": 0.0,
        "norm_epsilon": 1e-6,
    },
    "bert": {
        "architecture": "encoder",
        "decoder_layers": 0,
        "positions": "learned",
        "max_positions": 512,
        "segments": 2,
        "embedding": "normed",
        "feed_forward": "gelu",
        "norm_epsilon": 1e-12,
    },
    "marian": {
        "positions": "sinusoids_halves",
        "feed_forward": "silu",
        "tied": "all",
        "output_bias": True,
    },
}
"""What each family changed of the paper's model, sizes aside (`models/gpt.py`, `llama.py`, `bert.py`, `marian.py`)."""
