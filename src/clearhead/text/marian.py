"""Marian's tokenizers: a SentencePiece model for each side, and one vocabulary for both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from clearhead.control_tokens import BOS, CONTROL_COUNT, EOS, PAD, UNK
from clearhead.errors import ConfigError, RunError
from clearhead.text.control import Control
from clearhead.text.tokenizers import CONTROL_NAMES


def vocabulary_order(control: Control, size: int) -> list[int]:
    """Their id of each of our ids, for a vocabulary of `size` tokens of theirs."""
    first = [control.padding, control.start, *control.end[:1], control.unknown]
    if None in first or len(first) < 4 or len({*first}) < 3:
        raise ConfigError(f"a Marian model needs padding, start, end and unknown tokens, and has {control.to_dict()}")
    ids = [id for id in first if id is not None]
    return [*ids, *(id for id in range(size) if id not in ids)]


class MarianTokenizer:
    """One side. SentencePiece cuts a text into pieces; `vocab.json` says which id a piece has.

    The ids are ours: 0 to 3 are padding, start, end and unknown, the others follow in the order of `vocab.json`. A text
    of a model for several languages begins with the language that it is to be translated to: `>>fr<< I see.`
    """

    kind = "sentencepiece"
    separator = " "

    def __init__(self, model: Any, vocabulary: dict[str, int], order: Sequence[int]) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._order = order
        ours = {theirs: id for id, theirs in enumerate(order) if id >= CONTROL_COUNT}
        self._ids = {piece: ours[theirs] for piece, theirs in vocabulary.items() if theirs in ours}
        self._languages = {piece for piece in self._ids if piece.startswith(">>") and piece.endswith("<<")}

    @classmethod
    def load(cls, spm: Path, vocabulary: Path, order: Sequence[int]) -> MarianTokenizer:
        """Read a `source.spm` or `target.spm` and the `vocab.json` of both.

        Raises `ConfigError` when the sentencepiece library is missing, `RunError` for a file that can't be read.
        """
        try:
            import sentencepiece
        except ImportError:
            raise ConfigError(f'{spm}: to read it, pip install "clearhead[hf]" (the sentencepiece library)') from None
        try:
            pieces = json.loads(vocabulary.read_text(encoding="utf-8"))
            return cls(sentencepiece.SentencePieceProcessor(model_file=str(spm)), pieces, order)
        except (OSError, RuntimeError, ValueError) as error:
            raise RunError(f"{spm} or {vocabulary}: can't be read: {error}") from None

    def fingerprint(self) -> str:
        """Equal for equal tokenizers."""
        parts = (self._model.serialized_model_proto(), repr(self._vocabulary).encode(), repr(self._order).encode())
        return blake2b(b"".join(parts), digest_size=16).hexdigest()

    @property
    def vocab_size(self) -> int:
        """The number of ids, control ids included."""
        return len(self._order)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without start and end."""
        language, end, rest = text.partition("<<")
        if end and language + end in self._languages:
            return [self._ids[language + end], *self._encode_pieces(rest)]
        return self._encode_pieces(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; control tokens are left out, but what is unknown is shown as `�`."""
        pieces = ["�" if id == UNK else self._pieces.get(id, "�") for id in ids if id not in (PAD, BOS, EOS)]
        return self._model.decode_pieces(pieces).replace("▁", " ").strip()

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """One readable label for each id, for pictures and tables."""
        return [CONTROL_NAMES[id] if id < CONTROL_COUNT else self._pieces.get(id, "�") for id in ids]

    def _encode_pieces(self, text: str) -> list[int]:
        return [self._ids.get(piece, UNK) for piece in self._model.encode(text, out_type=str)]

    @cached_property
    def _pieces(self) -> dict[int, str]:
        return {id: piece for piece, id in self._ids.items()}
