"""What `transformers` calls the parts of each family, and how its configuration says what ours does."""

from __future__ import annotations

from clearhead.errors import ConfigError
from clearhead.interchange.families import bert, gpt2, llama, marian
from clearhead.interchange.families.family import Family

FAMILIES: dict[str, Family] = {
    family.name: family for family in (bert.FAMILY, gpt2.FAMILY, llama.FAMILY, marian.FAMILY)
}


def find_family(name: object, *, origin: str) -> Family:
    """The family of a `model_type`. Raises `ConfigError` for one that isn't known."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise ConfigError(f"{origin}: model_type = {name!r} is not known here; known are {', '.join(sorted(FAMILIES))}")
    return FAMILIES[name]
