"""The control tokens of a model that comes from elsewhere: which ids they are, for each vocabulary has its own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from clearhead.errors import RunError


@dataclass(frozen=True, kw_only=True)
class Control:
    """Ids that steer, and are no text. `None`: the model has no such token."""

    start: int | None = None
    """What a text begins with, or for Marian the target."""
    end: tuple[int, ...] = ()
    """Any of these ends a text."""
    padding: int | None = None
    """Fills a batch up."""
    unknown: int | None = None
    """Stands for what the vocabulary lacks."""
    mask: int | None = None
    """Stands where a token is to be guessed."""

    def to_dict(self) -> dict[str, Any]:
        """Every field, as JSON types."""
        return {**dataclasses.asdict(self), "end": list(self.end)}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Control:
        """The inverse of `to_dict`. Raises `RunError` for what is no such table."""
        try:
            return cls(**{**fields, "end": tuple(fields.get("end", ()))})
        except TypeError as error:
            raise RunError(f"control tokens {fields!r}: {error}") from None
