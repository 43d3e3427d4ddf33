"""What a check found, and what all of them found together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["fault", "warning", "fine", "not measured"]


@dataclass(frozen=True)
class Finding:
    """One check's answer: what was measured, whether that is a fault, why it may be so, and where to look."""

    verdict: Verdict
    measured: str
    """What was measured, with the numbers; or why it couldn't be."""
    causes: tuple[str, ...] = ()
    """The most likely causes, the likeliest first; empty when all is well."""
    look_at: tuple[str, ...] = ()
    """Places in the code: `file:line: what stands there`, or a module's path."""
    check: str = ""
    """The check's short name; `examine` fills it in."""
    title: str = ""
    """What the check is about, in words."""

    @property
    def is_fault(self) -> bool:
        """Something is wrong."""
        return self.verdict == "fault"


def fine(measured: str) -> Finding:
    """All is well."""
    return Finding("fine", measured)


def not_measured(reason: str) -> Finding:
    """The check doesn't apply, or lacks something it needs."""
    return Finding("not measured", reason)


def fault(measured: str, causes: Sequence[str], look_at: Sequence[str] = ()) -> Finding:
    """Something is wrong."""
    return Finding("fault", measured, tuple(causes), tuple(look_at))


def warning(measured: str, causes: Sequence[str], look_at: Sequence[str] = ()) -> Finding:
    """Something that may be meant, but seldom is."""
    return Finding("warning", measured, tuple(causes), tuple(look_at))


@dataclass(frozen=True)
class Report:
    """All findings about one model, in the order of the checks: roots before what follows from them."""

    subject: str
    findings: tuple[Finding, ...]

    @property
    def faults(self) -> list[Finding]:
        """What is wrong."""
        return [finding for finding in self.findings if finding.verdict == "fault"]

    @property
    def warnings(self) -> list[Finding]:
        """What may be wrong."""
        return [finding for finding in self.findings if finding.verdict == "warning"]

    def __getitem__(self, check: str) -> Finding:
        for finding in self.findings:
            if finding.check == check:
                return finding
        raise KeyError(check)

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return {"subject": self.subject, "findings": [dataclasses.asdict(finding) for finding in self.findings]}
