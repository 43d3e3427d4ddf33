"""The tokenizer of a model that comes from elsewhere: a `tokenizer.json` of the tokenizers library, as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from clearhead.errors import DataError, RunError
from clearhead.text.control import Control


class PretrainedTokenizer:
    """Texts to the ids of a model, with the control tokens that its file puts around them, and back.

    No text has control tokens in it: `</s>` in a prompt is four characters, unless `control_tokens` is asked for, as
    the templates of chat models need it.
    """

    kind = "pretrained"

    def __init__(self, library_tokenizer: tokenizers.Tokenizer, control: Control) -> None:
        self._library = library_tokenizer
        self._library.no_padding()
        self._library.no_truncation()
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

    @property
    def vocab_size(self) -> int:
        """The number of ids, control tokens included."""
        return self._library.get_vocab_size()

    def encode_batch(
        self, texts: Sequence[str], *, control_tokens: bool = False, longest: int | None = None
    ) -> list[list[int]]:
        """The ids of texts. Of a text with more than `longest` tokens the end is left out, but for its control tokens.

        Raises:
            DataError: a text is no valid Unicode.
        """
        self._library.encode_special_tokens = not control_tokens
        if longest is None:
            self._library.no_truncation()
        else:
            self._library.enable_truncation(longest)
        try:
            return [encoding.ids for encoding in self._library.encode_batch_fast(list(texts))]
        except TypeError:
            raise DataError(
                f"a text is no valid Unicode: {[text for text in texts if not is_unicode(text)]!r}"
            ) from None

    def encode(self, text: str, *, control_tokens: bool = False) -> list[int]:
        """The ids of a text."""
        return self.encode_batch([text], control_tokens=control_tokens)[0]

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
