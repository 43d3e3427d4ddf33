"""What a variant changed: made from two configurations, with the paper, the place in our code and the cost of each.

The variants are compared at one size, that of the paper's base model, so that only what is different in kind shows. A
difference costs what the model has more (or less) of when it is made, after those above it; so the costs add up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from clearhead.config import PRESETS, ModelConfig
from clearhead.errors import ConfigError
from clearhead.models.bert import BERT_DIFFERENCES
from clearhead.models.gpt import GPT2
from clearhead.models.llama import LLAMA, LLAMA_3_1_SCALING
from clearhead.models.making import count_parameters
from clearhead.models.marian import MARIAN

VOCABULARY = 37_000
"""That of the paper's English-German model (section 5.1)."""
TRANSFORMER: dict[str, Any] = {"tied": "all", "source_vocab": VOCABULARY, "target_vocab": VOCABULARY, **PRESETS["base"]}
VARIANTS: dict[str, dict[str, Any]] = {
    "transformer": {},
    "gpt2": GPT2,
    "bert": {**BERT_DIFFERENCES, "heads": "both"},
    "llama": {**LLAMA, "max_positions": 2048},
    "llama2": {**LLAMA, "max_positions": 4096, "norm_epsilon": 1e-5, "kv_heads": 2},
    "llama3": {
        **LLAMA, "max_positions": 131_072, "norm_epsilon": 1e-5, "kv_heads": 2, "rotary_base": 500_000.0,
        "rotary_scaling": LLAMA_3_1_SCALING,
    },
    "marian": MARIAN,
}  # fmt: skip
"""What each changed. LLaMA 2 (70B) and 3 let 8 and 4 heads of queries share one of keys; here 4 of 8."""

PARTS = "clearhead.parts"
ORIGINS: dict[tuple[str, Any], tuple[str, str]] = {
    ("architecture", "encoder-decoder"): ("Vaswani et al., 2017", "clearhead.models.transformer:Transformer"),
    ("architecture", "decoder"): ("Radford et al., 2018", f"{PARTS}.decoder_only:DecoderOnlyLayer"),
    ("architecture", "encoder"): ("Devlin et al., 2019", "clearhead.models.bert:BERT"),
    ("embedding", "scaled"): ("Vaswani et al., 2017, 3.4", f"{PARTS}.embedding:TokenEmbedding"),
    ("embedding", "plain"): ("Radford et al., 2018", f"{PARTS}.embedding:make_embedding"),
    ("embedding", "normed"): ("Devlin et al., 2019", "clearhead.models.bert:BERT"),
    ("positions", "sinusoids"): ("Vaswani et al., 2017, 3.5", f"{PARTS}.positions:PositionalEncoding"),
    ("positions", "sinusoids_halves"): ("Junczys-Dowmunt et al., 2018", f"{PARTS}.positions:HalvedPositionalEncoding"),
    ("positions", "learned"): ("Gehring et al., 2017", f"{PARTS}.positions:LearnedPositions"),
    ("positions", "rotary"): ("Su et al., 2021", f"{PARTS}.positions:RotaryPositions"),
    ("rotary_base", None): ("Xiong et al., 2023", f"{PARTS}.positions:RotaryPositions"),
    ("rotary_scaling", None): ("Grattafiori et al., 2024", f"{PARTS}.positions:scaled_frequency"),
    ("max_positions", None): ("", "clearhead.config:ModelConfig"),
    ("norm_position", "post"): ("Vaswani et al., 2017, 3.1", f"{PARTS}.layers:AddAndNorm"),
    ("norm_position", "pre"): ("Xiong et al., 2020", f"{PARTS}.layers:AddAndNorm"),
    ("norm", "layer"): ("Ba et al., 2016", f"{PARTS}.normalization:LayerNorm"),
    ("norm", "rms"): ("Zhang and Sennrich, 2019", f"{PARTS}.normalization:RMSNorm"),
    ("norm_epsilon", None): ("", f"{PARTS}.normalization:make_norm"),
    ("feed_forward", "relu"): ("Vaswani et al., 2017, 3.3", f"{PARTS}.feed_forward:PositionwiseFeedForward"),
    ("feed_forward", "gelu"): ("Hendrycks and Gimpel, 2016", f"{PARTS}.feed_forward:make_activation"),
    ("feed_forward", "gelu_tanh"): ("Hendrycks and Gimpel, 2016", f"{PARTS}.feed_forward:make_activation"),
    ("feed_forward", "silu"): ("Ramachandran et al., 2017", f"{PARTS}.feed_forward:make_activation"),
    ("feed_forward", "swiglu"): ("Shazeer, 2020", f"{PARTS}.feed_forward:GatedFeedForward"),
    ("kv_heads", None): ("Ainslie et al., 2023", f"{PARTS}.grouped_attention:GroupedQueryAttention"),
    ("biases", None): ("Touvron et al., 2023", f"{PARTS}.grouped_attention:GroupedQueryAttention"),
    ("segments", None): ("Devlin et al., 2019", "clearhead.models.bert:BERT"),
    ("heads", None): ("Devlin et al., 2019", "clearhead.models.bert:MaskedTokenHead"),
    ("output_bias", None): ("Junczys-Dowmunt et al., 2018", "clearhead.models.transformer:Transformer"),
    ("tied", None): ("Press and Wolf, 2017", "clearhead.models.transformer:Transformer.tie_weights"),
    ("dropout", None): ("Srivastava et al., 2014", "clearhead.config:ModelConfig"),
}
"""Of each value of each option (`None`: of any) who introduced it, and where it lives. A size has no entry."""
ORDER = (
    "architecture", "tied", "embedding", "max_positions", "positions", "rotary_base", "rotary_scaling", "segments",
    "norm_position", "norm", "norm_epsilon", "feed_forward", "kv_heads", "biases", "heads", "output_bias", "dropout",
)  # fmt: skip
"""The order in which differences are made, and shown: from the whole to its parts."""
DEPENDENT = {"architecture": ("encoder_layers", "decoder_layers")}
"""What has to change together with a field."""


@dataclass(frozen=True)
class Difference:
    """One option that two configurations don't share."""

    field: str
    before: Any
    after: Any
    parameters: int
    """How many more the model has, made after the differences above."""
    paper: str
    """Who introduced what it is now."""
    place: str
    """File and line in the package."""


def config_of(variant: str) -> ModelConfig:
    """A variant at the size of the paper's base model. Raises `ConfigError` for a name that isn't one."""
    if variant not in VARIANTS:
        raise ConfigError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    return ModelConfig(**{**TRANSFORMER, **VARIANTS[variant]})


def differences(before: ModelConfig, after: ModelConfig) -> list[Difference]:
    """All options in which two configurations differ, sizes aside, as steps from the one to the other.

    They are made in `ORDER`, but each only when what it leads to is a model: what an architecture doesn't have has to
    go before the architecture comes. Raises `ConfigError` if the sizes differ too.
    """
    found: list[Difference] = []
    current = before
    while missing := [name for name in ORDER if getattr(current, name) != getattr(after, name)]:
        for name in missing:
            changes = {also: getattr(after, also) for also in (name, *DEPENDENT.get(name, ()))}
            with contextlib.suppress(ConfigError):
                step = dataclasses.replace(current, **changes)
                break
        else:
            raise ConfigError(f"no model lies between the two; they differ in {', '.join(missing)}")
        paper, place = origin_of(name, getattr(after, name))
        cost = count_parameters(step) - count_parameters(current)
        found.append(Difference(name, getattr(before, name), getattr(after, name), cost, paper, place))
        current = step
    if current != after:
        raise ConfigError("the two have different sizes; compare variants of one size")
    return sorted(found, key=lambda difference: ORDER.index(difference.field))


def origin_of(name: str, value: Any) -> tuple[str, str]:
    """The paper of an option's value, and file and line of the code that makes it so."""
    entry = ORIGINS.get((name, value)) if isinstance(value, str) else None
    paper, path = entry or ORIGINS[name, None]
    return paper, source_place(path)


def source_place(path: str) -> str:
    """`clearhead.parts.positions:LearnedPositions` as `parts/positions.py:72`."""
    module_name, _, names = path.partition(":")
    found: Any = import_module(module_name)
    for name in names.split("."):
        found = getattr(found, name)
    found = inspect.unwrap(found)  # a checker of shapes may have wrapped it
    file = Path(inspect.getsourcefile(found) or "")
    package = Path(import_module("clearhead").__file__ or "").parent
    return f"{file.relative_to(package).as_posix()}:{inspect.getsourcelines(found)[1]}"
