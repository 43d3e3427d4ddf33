"""What the standard library lacks for TOML: setting one key from the command line, and writing."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from clearhead.errors import ConfigError


def apply_override(tables: dict[str, Any], override: str) -> None:
    """Set one key in place: `training.updates=100`; `training.patience=none` takes a key away."""
    name, equals, text = override.partition("=")
    keys = [key.strip() for key in name.split(".")]
    if not equals or len(keys) < 2 or not all(keys):
        raise ConfigError(f"--set {override}: write section.key=value, such as training.updates=100")
    for key in keys[:-1]:
        tables = tables.setdefault(key, {})
        if not isinstance(tables, dict):
            raise ConfigError(f"--set {override}: {key} is no table of keys")
    if text.strip() == "none":
        tables.pop(keys[-1], None)
    else:
        tables[keys[-1]] = _parse_value(text)


def _parse_value(text: str) -> Any:
    """A value of TOML's (number, true, "text", [list], {table}), or else the text as it stands."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = parsed["value"]
    return value if len(parsed) == 1 and isinstance(value, str | int | float | list | dict) else text


def to_toml(tables: Mapping[str, Any]) -> str:
    """The text of nested tables of JSON types; reads back equal."""
    return "\n".join(_table(tables, ()))


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """The lines of one table: its values first, then its sub-tables under their own headings."""
    values = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = [f"[{'.'.join(path)}]"] if path and (values or not table) else []
    lines += [f"{key} = {_value(value)}" for key, value in values.items()]
    lines += [""] if lines else []
    for key, value in table.items():
        if isinstance(value, dict):
            lines += _table(value, (*path, key))
    return lines


def _value(value: Any) -> str:
    """One value in TOML: JSON's notation, but for tables and the one control character that JSON leaves bare."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
