"""The attributes of somebody's configuration file, each of which is understood or refused.

An attribute that nobody looks at is how a model comes to load, run, and be wrong. So every name is a field of ours, or
one that may only have the value with which we compute the same, or one that says nothing about what is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clearhead.errors import ConfigError

# About the file, about training it from scratch, about what a call returns, about defaults of generation.
NAMES = """
    _name_or_path architectures model_type transformers_version torch_dtype dtype tokenizer_class use_cache
    initializer_range init_std gradient_checkpointing output_attentions output_hidden_states return_dict
    id2label label2id num_labels _num_labels problem_type finetuning_task task_specific_params
    bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
    bad_words_ids max_length min_length num_beams length_penalty early_stopping do_sample temperature top_k top_p
    repetition_penalty no_repeat_ngram_size num_return_sequences classifier_dropout classif_dropout torchscript
    is_encoder_decoder attn_implementation _attn_implementation_autoset keys_to_ignore_at_inference
"""
SAYS_NOTHING = frozenset(NAMES.split())
"""Attributes that say nothing about what a model computes."""


class Attributes:
    """A configuration file being read; `require_all_read` at the end says what nobody understood."""

    def __init__(self, values: Mapping[str, Any], *, origin: str) -> None:
        self.values = dict(values)
        self.origin = origin
        self._unread = set(values) - SAYS_NOTHING

    def take(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or the default that it has where it isn't named."""
        self._unread.discard(name)
        value = self.values.get(name)
        return default if value is None else value

    def whole(self, name: str) -> int:
        """A whole number that has to be there."""
        value = self.take(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"{self.origin}: {name} = {value!r}: expected a whole number")
        return value

    def choose(self, name: str, default: str, choices: Mapping[str, Any]) -> Any:
        """What one of a few words means to us."""
        value = self.take(name, default)
        if value not in choices:
            raise ConfigError(f"{self.origin}: {name} = {value!r} is not known here; known are {', '.join(choices)}")
        return choices[value]

    def require(self, **expected: Any) -> None:
        """Refuse any other value of attributes that we have no choice about."""
        for name, value in expected.items():
            found = self.take(name, value)
            if found != value:
                raise ConfigError(f"{self.origin}: {name} = {found!r} is not supported, only {value!r}")

    def ignore(self, names: Iterable[str]) -> None:
        """Attributes that change nothing in what is computed."""
        self._unread -= set(names)

    def require_all_read(self) -> None:
        """Refuse the file if it has an attribute that nobody asked for."""
        if self._unread:
            found = ", ".join(f"{name} = {self.values[name]!r}" for name in sorted(self._unread))
            raise ConfigError(f"{self.origin}: not known here, and it may change what the model computes: {found}")
