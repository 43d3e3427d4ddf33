"""A whole recipe: its sections, and the model that they ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from clearhead.config import FAMILIES, PRESETS, ModelConfig
from clearhead.errors import ConfigError
from clearhead.recipe.sections import (
    DataSection,
    DecodingSection,
    DiagnosticsSection,
    Metric,
    RunSection,
    Section,
    TokenizerSection,
    TrainingSection,
)
from clearhead.toml import to_toml

METRICS_OF: dict[str, tuple[Metric, ...]] = {
    "encoder-decoder": ("loss", "bleu", "chrf2", "exact_match", "wer", "per"),
    "decoder": ("loss",),
    "encoder": ("loss", "masked_accuracy"),
}
"""What a model of each architecture can be validated by."""
TEXT_DEFAULTS: dict[str, dict[str, Any]] = {"encoder": {"heads": "masked_token"}}
"""What a model that learns from texts has unless told otherwise, beside room for a block."""


class Recipe(Section):
    """A whole recipe."""

    run: RunSection = RunSection()
    data: DataSection
    tokenizer: TokenizerSection = TokenizerSection()
    model: dict[str, Any] = Field({"preset": "tiny"})
    """`preset` (tiny, small, base, big), `family` (gpt2, llama, bert, marian; by default the paper's Transformer) and
    any field of `ModelConfig` but the vocabularies. Or `start_from`: a run folder, trained or imported, whose weights,
    shape and tokenizers are taken; fields given beside it change its shape."""
    training: TrainingSection = TrainingSection()
    diagnostics: DiagnosticsSection = DiagnosticsSection()
    decoding: DecodingSection = DecodingSection()

    @property
    def start_from(self) -> Path | None:
        """The run that this one begins with."""
        return Path(self.model["start_from"]) if "start_from" in self.model else None

    def model_fields_given(self) -> dict[str, Any]:
        """The fields of `ModelConfig` that `[model]` sets: by preset, by family, by name. Raises `ConfigError`."""
        own = dict(self.model)
        starts = own.pop("start_from", None) is not None
        preset, family = own.pop("preset", None if starts else "tiny"), own.pop("family", None)
        for key, name, known in (("preset", preset, PRESETS), ("family", family, FAMILIES)):
            if name is not None and name not in known:
                raise ConfigError(f"model.{key} = {name!r}: choose one of {', '.join(known)}")
        if given := own.keys() & {"source_vocab", "target_vocab"}:
            raise ConfigError(f"model.{min(given)} follows from the tokenizer; set tokenizer.vocab_size")
        fields = {**PRESETS.get(preset or "", {}), **FAMILIES.get(family or "", {})}
        if self.data.is_text and not starts:
            architecture = {**fields, **own}.get("architecture", "encoder-decoder")
            fields |= {"max_positions": self.data.block_length, **TEXT_DEFAULTS.get(architecture, {})}
        return {**fields, **own}

    def model_shape(self, *, source_vocab: int, target_vocab: int) -> ModelConfig:
        """The model's configuration, once the vocabularies are known. Raises `ConfigError`."""
        sizes = {"source_vocab": source_vocab, "target_vocab": target_vocab}
        return self.checked_shape({**self.model_fields_given(), **sizes})

    def checked_shape(self, fields: dict[str, Any]) -> ModelConfig:
        """The configuration of these fields. Raises `ConfigError` if it can't be, or can't learn from `[data]`."""
        try:
            config = ModelConfig.from_dict(fields)
        except ConfigError as error:
            raise ConfigError(f"[model]: {error}") from None
        if (config.architecture != "encoder-decoder") != self.data.is_text:
            raise ConfigError(
                "[data] has texts, which a Transformer can't learn from: set model.family to gpt2, llama or bert"
                if self.data.is_text
                else f"a model of architecture {config.architecture!r} learns from texts; set data.train.text"
            )
        metrics = METRICS_OF[config.architecture]
        if self.training.metric not in metrics:
            found = f"training.metric = {self.training.metric!r}: a model of architecture {config.architecture!r} has"
            raise ConfigError(f"{found} {' or '.join(metrics)}")
        if config.architecture == "encoder" and config.heads not in ("masked_token", "both"):
            raise ConfigError(f"model.heads = {config.heads!r}: masked tokens are learned by heads = 'masked_token'")
        if self.data.is_text and config.positions == "learned" and self.data.block_length > (config.max_positions or 0):
            raise ConfigError(
                f"data.block_length = {self.data.block_length}, but the model has {config.max_positions} positions: "
                "lower the one or raise model.max_positions"
            )
        return config

    def to_toml(self) -> str:
        """The recipe as TOML, every key written out; reads back as an equal recipe."""
        return to_toml(self.model_dump(mode="json", exclude_none=True))
