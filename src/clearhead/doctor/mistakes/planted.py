"""How a mistake is written down: a function that returns a patient, marked with the check that has to name it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from clearhead.doctor.patient import Patient

MARK = "_planted"


@dataclass(frozen=True)
class Mistake:
    """A planted mistake."""

    name: str
    check: str
    """The check that has to find it."""
    seen: str
    """Where people made it."""
    says: str
    """What is wrong."""
    make: Callable[[], Patient]


def planted(check: str, seen: str) -> Callable[[Callable[[], Patient]], Callable[[], Patient]]:
    """Marks a function: its patient has one mistake, which `check` has to name."""

    def mark(make: Callable[[], Patient]) -> Callable[[], Patient]:
        setattr(make, MARK, (check, seen))
        return make

    return mark


def mistakes_in(module: ModuleType) -> list[Mistake]:
    """All marked functions of a module, in their order."""
    return [
        Mistake(name, check, seen, (make.__doc__ or "").strip().split("\n")[0], make)
        for name, make in vars(module).items()
        if hasattr(make, MARK)
        for check, seen in [getattr(make, MARK)]
    ]
