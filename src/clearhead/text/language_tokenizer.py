"""The tokenizer of a language model that is trained here: one of ours, with control tokens by name, and around a text.

    a model that goes on with texts    <s> a b c
    a model that reads whole texts     <s> a b c </s>, and it has a token [MASK]

It is a `tokenizer.json` as other libraries read it, too. The names are ordinary text where a user writes them: none of
the kinds has a token that holds letters beside other signs.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from clearhead.control_tokens import BOS, EOS, PAD, UNK
from clearhead.text.control import Control
from clearhead.text.tokenizers import CONTROL_NAMES, Tokenizer, TokenizerKind, train_tokenizer

MASK_NAME = "[MASK]"


def train_language_tokenizer(
    kind: TokenizerKind, texts: Iterable[str], *, vocab_size: int | None, reads_whole_texts: bool
) -> tuple[str, Control]:
    """The `tokenizer.json` learned from texts, and its control tokens. Raises `ConfigError` as `train_tokenizer`."""
    control = Control(start=BOS, end=(EOS,), padding=PAD, unknown=UNK)
    if not reads_whole_texts:
        trained = train_tokenizer(kind, texts, vocab_size=vocab_size)
        return with_named_control(trained, CONTROL_NAMES, ends=False), control
    trained = train_tokenizer(kind, texts, vocab_size=None if vocab_size is None else vocab_size - 1)
    control = dataclasses.replace(control, mask=trained.vocab_size)
    return with_named_control(trained, (*CONTROL_NAMES, MASK_NAME), ends=True), control


def with_named_control(tokenizer: Tokenizer, names: tuple[str, ...], *, ends: bool) -> str:
    """A tokenizer's file in which the control tokens have these names, and stand around each text.

    The first four names are those of the ids 0 to 3; further ones get ids of their own, behind the vocabulary's.
    """
    found: dict[str, Any] = json.loads(tokenizer.to_json())
    ordinary = {piece: id for piece, id in found["model"]["vocab"].items() if id >= len(CONTROL_NAMES)}
    further = len(names) - len(CONTROL_NAMES)
    ids = [*range(len(CONTROL_NAMES)), *range(tokenizer.vocab_size, tokenizer.vocab_size + further)]
    named = dict(zip(names, ids, strict=True))
    found["model"]["vocab"] = dict(sorted({**named, **ordinary}.items(), key=lambda entry: entry[1]))
    if found["model"].get("unk_token") is not None:
        found["model"]["unk_token"] = CONTROL_NAMES[UNK]
    found["decoder"] = found["decoder"] or {"type": "Fuse"}  # characters are put together without spaces
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    found["added_tokens"] = [{"id": id, "content": name, **flags} for name, id in named.items()]
    around = [CONTROL_NAMES[BOS], CONTROL_NAMES[EOS]] if ends else [CONTROL_NAMES[BOS]]
    single = [_special(around[0], 0), _sequence("A", 0), *(_special(name, 0) for name in around[1:])]
    found["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, _sequence("B", 1), *(_special(name, 1) for name in around[1:])],
        "special_tokens": {name: {"id": name, "ids": [named[name]], "tokens": [name]} for name in around},
    }
    return json.dumps(found, ensure_ascii=False, indent=1)


def _special(name: str, segment: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": segment}}


def _sequence(which: str, segment: int) -> dict[str, Any]:
    return {"Sequence": {"id": which, "type_id": segment}}
