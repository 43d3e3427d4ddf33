"""Texts to token ids and back, on the `tokenizers` library: four kinds, one class, one JSON file.

    kind   a token is                                      lossless                  unknown symbols
    char   a character seen in training                    yes                       become UNK
    word   a symbol between separators (phonemes, words)   runs of separators fold   become UNK
    bpe    a frequent sequence of bytes, learned           yes                       none: all is bytes
    byte   a byte of UTF-8                                 yes                       none

Nothing is normalised, added or trimmed: what `decode` gives back is what `encode` was given, double spaces,
`▁` and `@@` included. And no text can produce a control id: the four control tokens are entries of the
vocabulary under names that no text can spell (`"<pad >"`: a `char` token has one character, a `word` token
has no separator in it, and in bytes the space is written `Ġ`), so `<pad>` in a text is five characters like
any other.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Protocol, assert_never, get_args

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from clearhead.errors import ConfigError, DataError, RunError

TokenizerKind = Literal["char", "word", "bpe", "byte"]

PAD, BOS, EOS, UNK = range(4)
CONTROL_COUNT = 4
CONTROL_NAMES = ("<pad>", "<s>", "</s>", "<unk>")
"""How pictures and tables show the control ids, in the order of the ids."""
BYTE_VOCABULARY = CONTROL_COUNT + 256
DEFAULT_BPE_VOCABULARY = 8_000
REPLACEMENT = "\ufffd"

# Words with the space before them, numbers, punctuation, white space: GPT-2's pattern, except that combining
# marks belong to the letters before them. Without \p{M}, vowels of Hindi, Thai or of decomposed accents would
# fall out of their words.
BPE_WORD = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"


class PairTokenizer(Protocol):
    """What encodes one side of pairs: padding, start, end and unknown have the ids 0 to 3, and texts have none of
    them."""

    @property
    def vocab_size(self) -> int:
        """The number of ids, control ids included."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, without start and end."""

    def fingerprint(self) -> str:
        """Equal for equal tokenizers."""


class Tokenizer:
    """Texts to lists of ids and back.

    Ids 0 to 3 are padding, start, end and unknown in every kind; `encode` never adds the first three.
    Made by `train_tokenizer` or `Tokenizer.load`.
    """

    def __init__(self, library_tokenizer: tokenizers.Tokenizer) -> None:
        self._library = library_tokenizer
        self._specification: dict[str, Any] = json.loads(library_tokenizer.to_str())
        self.kind, self.separator = _kind_and_separator(self._specification)

    @property
    def vocab_size(self) -> int:
        """The number of ids, control ids included."""
        return self._library.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without start and end.

        Raises:
            DataError: the text is no valid Unicode (it holds half of a surrogate pair).
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts at once, on all cores; each as `encode` gives them."""
        try:
            return [encoding.ids for encoding in self._library.encode_batch_fast(list(texts))]
        except TypeError as error:
            raise DataError(_why_not_encodable(texts)) from error

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; padding, start and end are left out, unknown ids and broken UTF-8 are shown as `�`
        (U+FFFD)."""
        separator = self.separator.encode() if self.kind == "word" else b""
        pieces = [self._piece(token) for token in ids if token not in (PAD, BOS, EOS)]
        return separator.join(pieces).decode("utf-8", errors="replace")

    def tokens(self, ids: Sequence[int]) -> list[str]:
        r"""One readable label for each id, for pictures and tables.

        A space is shown as `▁`, invisible characters and bytes that are only part of a character by their
        number (`\u200b`, `\xc3`), a control id by its name (`</s>`).
        """
        return [CONTROL_NAMES[token] if 0 <= token < CONTROL_COUNT else _readable(self._piece(token)) for token in ids]

    def to_json(self) -> str:
        """The file of the tokenizers library for this tokenizer; equal for equal tokenizers."""
        return json.dumps(self._specification, ensure_ascii=False, indent=1)

    def fingerprint(self) -> str:
        """Equal for equal tokenizers: whether texts have to be encoded anew."""
        return blake2b(self.to_json().encode(), digest_size=16).hexdigest()

    def save(self, path: Path) -> None:
        """Write `to_json` to a file, by way of a temporary one beside it."""
        temporary = path.with_name(path.name + ".partial")
        temporary.write_text(self.to_json(), encoding="utf-8", newline="\n")
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read what `save` wrote.

        Raises:
            RunError: no such file, or no tokenizer of ours in it.
        """
        try:
            return cls(tokenizers.Tokenizer.from_str(Path(path).read_text(encoding="utf-8")))
        except RunError as error:
            raise RunError(f"{path}: {error}") from error
        except OSError as error:
            raise RunError(f"{path}: can't read the tokenizer: {error.strerror or error}") from error
        except Exception as error:  # the library raises nothing narrower for a file that it can't make out
            raise RunError(f"{path}: not a tokenizer's file: {error}") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self._specification == other._specification

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, vocab_size={self.vocab_size})"

    def _piece(self, token: int) -> bytes:
        """What an id spells, in bytes."""
        if token not in self._spelled:  # one after another as they are needed: a whole vocabulary takes a while
            self._spelled[token] = self._spell(token)
        return self._spelled[token]

    @cached_property
    def _spelled(self) -> dict[int, bytes]:
        return {}

    def _spell(self, token: int) -> bytes:
        piece = self._library.id_to_token(token) if CONTROL_COUNT <= token < self.vocab_size else None
        if piece is None:
            return REPLACEMENT.encode()
        if self.kind in ("bpe", "byte"):
            byte_of = _bytes_of_characters()
            return bytes(byte_of.get(character, 0) for character in piece)
        return piece.encode()


def train_tokenizer(
    kind: TokenizerKind,
    texts: Iterable[str],
    *,
    vocab_size: int | None = None,
    separator: str = " ",
    min_count: int = 1,
) -> Tokenizer:
    """Learn a tokenizer from texts, in one pass over them; the same texts always give the same tokenizer.

    Args:
        kind: see the table at the head of this file.
        texts: what to learn from; `byte` needs none.
        vocab_size: the most ids it may have, control ids included; by default all symbols, for `bpe` 8,000.
        separator: what stands between the symbols of `word`.
        min_count: rarer characters, symbols or merges are left out.

    Raises:
        ConfigError: `vocab_size` is too small for the kind, or the separator is empty.
    """
    least = BYTE_VOCABULARY if kind in ("bpe", "byte") else CONTROL_COUNT + 1
    if vocab_size is not None and vocab_size < least:
        raise ConfigError(f"vocab_size={vocab_size} is too small: a {kind} tokenizer needs at least {least}")
    match kind:
        case "char":
            characters = _most_frequent(texts, vocab_size, min_count)
            return Tokenizer(_character_tokenizer(characters))
        case "word":
            if not separator:
                raise ConfigError("the separator of a word tokenizer can't be empty; for single characters take char")
            symbols = _most_frequent((_symbols(text, separator) for text in texts), vocab_size, min_count)
            return Tokenizer(_word_tokenizer(symbols, separator))
        case "bpe":
            return Tokenizer(_train_bpe(texts, vocab_size or DEFAULT_BPE_VOCABULARY, min_count))
        case "byte":
            return Tokenizer(_byte_tokenizer())
        case _:
            assert_never(kind)


def _symbols(text: str, separator: str) -> list[str]:
    return [symbol for symbol in text.split(separator) if symbol]


def _most_frequent(texts: Iterable[Iterable[str]], vocab_size: int | None, min_count: int) -> list[str]:
    """The symbols of all texts by falling frequency, equal ones in the order of their characters."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    symbols = sorted((s for s in counts if counts[s] >= min_count), key=lambda symbol: (-counts[symbol], symbol))
    return symbols if vocab_size is None else symbols[: vocab_size - CONTROL_COUNT]


def _vocabulary(symbols: Iterable[str], separator: str = " ") -> dict[str, int]:
    return {symbol: id for id, symbol in enumerate([*_unspellable(separator), *symbols])}


def _unspellable(separator: str = " ") -> list[str]:
    """The control tokens' names in the vocabulary: with the separator in them, no text has them as one
    symbol."""
    return [name[:-1] + separator + name[-1] for name in CONTROL_NAMES]


def _character_tokenizer(characters: Iterable[str]) -> tokenizers.Tokenizer:
    # A text is one "word" of a BPE without merges: its characters stay apart. Much faster than a regular
    # expression.
    model = models.BPE(vocab=_vocabulary(characters), merges=[], unk_token=_unspellable()[UNK])
    return tokenizers.Tokenizer(model)


def _byte_tokenizer() -> tokenizers.Tokenizer:
    # The id of a byte is the byte + 4.
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=_vocabulary(_byte_characters()), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _word_tokenizer(symbols: Iterable[str], separator: str) -> tokenizers.Tokenizer:
    model = models.WordLevel(vocab=_vocabulary(symbols, separator), unk_token=_unspellable(separator)[UNK])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(separator, "removed")
    return tokenizer


def _train_bpe(texts: Iterable[str], vocab_size: int, min_count: int) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(BPE_WORD), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=max(2, min_count),  # what occurs once is nothing to learn from
        special_tokens=_unspellable(),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # The trainer also lists the control tokens as "added", and added tokens are looked for in every text.
    # Ours never are.
    specification = json.loads(tokenizer.to_str())
    specification["added_tokens"] = []
    return tokenizers.Tokenizer.from_str(json.dumps(specification))


def _kind_and_separator(specification: dict[str, Any]) -> tuple[TokenizerKind, str]:
    """Which of our kinds a file of the tokenizers library is: each has its own model and pre-tokenizer."""
    vocabulary = specification["model"].get("vocab", {})
    splitter = specification["pre_tokenizer"] or {"type": None}
    separator = splitter.get("pattern", {}).get("String", " ")
    kinds: dict[tuple[str, str | None], TokenizerKind] = {
        ("BPE", None): "char",
        ("WordLevel", "Split"): "word",
        ("BPE", "Sequence"): "bpe",
        ("BPE", "ByteLevel"): "byte",
    }
    kind = kinds.get((specification["model"]["type"], splitter["type"]))
    if kind is None or [vocabulary.get(name) for name in _unspellable(separator)] != [PAD, BOS, EOS, UNK]:
        raise RunError(f"not one of Clearhead's tokenizers ({', '.join(get_args(TokenizerKind))})")
    return kind, separator


def _byte_characters() -> list[str]:
    """The printable character that stands for each of the 256 bytes in the files of GPT-2 and its
    successors."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    character = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [character[byte] for byte in range(256)]


@cache
def _bytes_of_characters() -> dict[str, int]:
    return {character: byte for byte, character in enumerate(_byte_characters())}


def _readable(piece: bytes) -> str:
    text = piece.decode("utf-8", errors="backslashreplace").replace(" ", "▁")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _why_not_encodable(texts: Sequence[str]) -> str:
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            return f"text {number} is a {type(text).__name__}, but a str is needed"
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            half = f"U+{ord(text[error.start]):04X}"
            return f"text {number} holds {half} at position {error.start}: half a character"
    return "the texts can't be encoded"
