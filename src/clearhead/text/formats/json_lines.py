"""JSON lines: one object a line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearhead.errors import DataError
from clearhead.text.lines import Pair, fold_field_breaks, read_lines


def read_json_lines(path: Path, source: str, target: str) -> Iterator[Pair]:
    """Pairs of the values under two keys of each line's object.

    A key may lead inwards with dots (`translation.en`). `null` is an empty text, a blank line an empty pair.
    """
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            yield Pair("", "", number)
            continue
        place = f"{path}, line {number}"
        row = _parse(line, place)
        yield Pair(_text(row, source, place), _text(row, target, place), number)


def _parse(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not a line of JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f'{place}: a JSON object like {{"source": "…", "target": "…"}} is needed, not {line[:60]!r}')
    return row


def _text(row: dict[str, Any], key: str, place: str) -> str:
    value: Any = row
    for name in [key] if key in row else key.split("."):
        if not isinstance(value, dict) or name not in value:
            keys = ", ".join(map(repr, value)) if isinstance(value, dict) else type(value).__name__
            raise DataError(f"{place}: no {key!r} in it, only {keys[:200]}; name source_column and target_column")
        value = value[name]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{place}: {key!r} is of type {type(value).__name__}, but a text in quotes is needed")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can spell half of a character: "\ud83d"
        half = value[error.start].encode("utf-8", "backslashreplace").decode()
        raise DataError(f"{place}: {key!r} holds {half}, half of a surrogate pair and so no character") from error
    return fold_field_breaks(value)
