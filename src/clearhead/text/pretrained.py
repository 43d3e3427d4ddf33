"""The tokenizer of a model that comes from elsewhere: a `tokenizer.json` of the tokenizers library, as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import tokenizers

from clearhead.errors import DataError, RunError
from clearhead.text.control import Control


class PretrainedTokenizer:
    """Texts to the ids of a model, with the control tokens that its file puts around them, and back.

    No text has control tokens in it: `</s>` in a prompt is four characters. Only a template, as chat models need it
    around a prompt, can name control tokens; and in a text to guess at, the mask.
    """

    kind = "pretrained"

    def __init__(self, library_tokenizer: tokenizers.Tokenizer, control: Control) -> None:
        self._library = library_tokenizer
        self._library.no_padding()
        self._library.no_truncation()
        self._library.encode_special_tokens = True
        self.control = control

    @classmethod
    def load(cls, path: Path, control: Control) -> PretrainedTokenizer:
        """Read a `tokenizer.json`. Raises `RunError` when it is none."""
        try:
            return cls(tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8")), control)
        except OSError as error:
            raise RunError(f"{path}: can't read the tokenizer: {error.strerror or error}") from error
        except Exception as error:  # the library raises nothing narrower for a file that it can't make out
            raise RunError(f"{path}: not a tokenizer's file: {error}") from error

    def fingerprint(self) -> str:
        """Equal for equal tokenizers: whether texts have to be encoded anew."""
        return blake2b(f"{self._library.to_str()} {self.control}".encode(), digest_size=16).hexdigest()

    @property
    def vocab_size(self) -> int:
        """The number of ids, control tokens included."""
        return self._library.get_vocab_size()

    def encode_batch(self, texts: Sequence[str], *, longest: int | None = None) -> list[list[int]]:
        """The ids of texts. Of a text with more than `longest` tokens the end is left out, but for its control tokens.

        Raises:
            DataError: a text is no valid Unicode.
        """
        if longest is not None:
            self._library.enable_truncation(longest)
        try:
            return [encoding.ids for encoding in self._library.encode_batch_fast(list(texts))]
        except TypeError:
            wrong = [text for text in texts if not is_unicode(text)]
            raise DataError(f"a text is no valid Unicode: {wrong[:1]!r}") from None
        finally:
            self._library.no_truncation()

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self.encode_batch([text])[0]

    def encode_bare(self, text: str) -> list[int]:
        """The ids of a text alone, without the control tokens that stand around one."""
        return self._encode_parts([text])

    def encode_in(self, template: str, text: str) -> list[int]:
        """The ids of a template with a text at its `{}`; control tokens are those that the template names."""
        names = self._control_ids
        parts = re.split(f"({'|'.join(map(re.escape, names))})", template) if names else [template]
        ids = self._encode_parts([names.get(part, part.replace("{}", text)) for part in parts])
        before, _ = self._frame
        return ids if ids[: len(before)] == before else before + ids

    def encode_masked(self, text: str) -> list[int]:
        """The ids of a text in which the mask's name stands for the mask, and no other control token's for itself."""
        mask = self.control.mask
        name = None if mask is None else self._library.id_to_token(mask)
        parts: list[str | int] = []
        for piece in text.split(name) if name else [text]:
            parts += [piece] if mask is None or not parts else [mask, piece]
        before, after = self._frame
        return before + self._encode_parts(parts) + after

    def _encode_parts(self, parts: Sequence[str | int]) -> list[int]:
        """Texts as their ids, without control tokens around; ids as they are."""
        ids: list[int] = []
        for part in parts:
            ids += [part] if isinstance(part, int) else self._library.encode(part, add_special_tokens=False).ids
        return ids

    @cached_property
    def _control_ids(self) -> dict[str, int]:
        """Ids of the control tokens, by name."""
        added = self._library.get_added_tokens_decoder().items()
        return {token.content: id for id, token in added if token.special}

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        """The control tokens that are put before and behind a text."""
        bare, framed = (self._library.encode("a", add_special_tokens=add).ids for add in (False, True))
        start = next(place for place in range(len(framed)) if framed[place : place + len(bare)] == bare)
        return framed[:start], framed[start + len(bare) :]

    def special_ids(self) -> set[int]:
        """Ids that its file says are no text."""
        return set(self._control_ids.values())

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; control tokens are left out."""
        return self._library.decode(list(ids), skip_special_tokens=True)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """One readable label for each id, for pictures and tables."""
        return [(self._library.id_to_token(id) or "�").replace("Ġ", "▁").replace("Ċ", "\\n") for id in ids]

    def id_of(self, token: str) -> int | None:
        """The id of an entry of the vocabulary, as its file spells it."""
        return self._library.token_to_id(token)


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: no lone half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
