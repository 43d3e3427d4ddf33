"""Message catalogues of gettext, `.po`.

Written here, since `polib` and `babel` both take U+2028 and its like inside a message for a line end, and
lose the message or refuse the file; the format itself is a few keywords and C strings.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from clearhead.errors import ConfigError, DataError
from clearhead.text.lines import Pair, fold_field_breaks, read_lines

Field = Literal["msgid", "msgstr"]

STATEMENT = re.compile(r'(?:(msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?)[ \t]*)?"((?:[^"\\]|\\.)*)"')
# Octal and hexadecimal escapes are bytes: a run of them spells one or more characters of UTF-8.
ESCAPE = re.compile(r"(?P<bytes>(?:\\(?:[0-7]{1,3}|x[0-9a-fA-F]{2}))+)|\\(?P<letter>.)")
NAMED_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass
class _Message:
    line: int = 0
    fuzzy: bool = False
    texts: dict[str, str] = field(default_factory=dict)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The message and its translation; of one with plural forms, the singular with the first, plural with
        the last."""
        forms = [text for keyword, text in self.texts.items() if keyword.startswith("msgstr")]
        # The header is the message of an empty msgid. A fuzzy translation belongs to an older wording.
        if self.fuzzy or not self.texts.get("msgid") or not forms:
            return
        yield self.texts["msgid"], forms[0]
        if "msgid_plural" in self.texts and len(forms) > 1:
            yield self.texts["msgid_plural"], forms[-1]


def read_gettext(path: Path, source: str, target: str) -> Iterator[Pair]:
    """Pairs of messages and their translations, `msgid` to `msgstr` or the other way round.

    Fuzzy and obsolete messages and the header are left out; an untranslated message is a pair with an empty
    target.
    """
    if {source, target} != {"msgid", "msgstr"}:
        raise ConfigError(f"{path}: the columns of a .po file are msgid and msgstr, not {source!r} and {target!r}")
    for message in _messages(path):
        for text, translation in message.pairs():
            pair = (text, translation) if source == "msgid" else (translation, text)
            yield Pair(fold_field_breaks(pair[0]), fold_field_breaks(pair[1]), message.line)


def _messages(path: Path) -> Iterator[_Message]:
    message, keyword = _Message(), ""
    for number, line in enumerate(read_lines(path), start=1):
        content = line.strip(" \t")
        starts_message = content.startswith(("msgctxt", "msgid ", 'msgid"', "msgid\t", "#"))
        if starts_message and _is_complete(message):
            yield message
            message = _Message()
        if content.startswith("#"):
            message.fuzzy |= content.startswith("#,") and "fuzzy" in content
        elif content:
            keyword, text = _statement(content, keyword, message, f"{path}, line {number}")
            message.line = message.line or number
            message.texts[keyword] = message.texts.get(keyword, "") + text
    if message.texts and not _is_complete(message):
        raise DataError(f"{path}, line {message.line}: the file ends before this message's msgstr")
    yield message


def _is_complete(message: _Message) -> bool:
    return any(keyword.startswith("msgstr") for keyword in message.texts)


def _statement(content: str, keyword: str, message: _Message, place: str) -> tuple[str, str]:
    """The keyword that a line's string belongs to (a line without one continues the one before), and the
    string."""
    match = STATEMENT.fullmatch(content)
    if match is None or not (match[1] or message.texts):
        raise DataError(f'{place}: a .po file has lines like msgid "text" here, not {content[:60]!r}')
    if match[1] in message.texts:
        raise DataError(f"{place}: a second {match[1]} in the same message; the first is at line {message.line}")
    return match[1] or keyword, _unescape(match[2])


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        if match["bytes"] is None:
            return NAMED_ESCAPES.get(match["letter"], match["letter"])
        codes = match["bytes"].split("\\")[1:]
        values = [int(code[1:], 16) if code[0] == "x" else int(code, 8) & 0xFF for code in codes]
        return bytes(values).decode("utf-8", "replace")

    return ESCAPE.sub(character, text)
