"""The doctor's own examination: every planted mistake and every sound model, as a table for the documentation.

    python -m clearhead.doctor.table docs/doctor.md docs/doctor.json

Writes the JSON file, and replaces what is between the marks in the Markdown file. Ends with an error if a mistake
isn't named or a sound model raises an alarm.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from clearhead.doctor.catalogue import CHECKS, run_checks
from clearhead.doctor.mistakes import masks, sound, structure, training
from clearhead.doctor.mistakes.planted import Mistake, mistakes_in
from clearhead.doctor.patient import Patient
from clearhead.errors import ConfigError

BEGIN, END = "<!-- begin: make doctor-table -->", "<!-- end: make doctor-table -->"


@dataclass(frozen=True)
class Named:
    """What the doctor said of a planted mistake."""

    name: str
    says: str
    seen: str
    planted: str
    first: str | None
    """The first fault of the report: the one to mend first."""
    also: list[str]
    """The other faults: what follows from the mistake."""

    @property
    def is_named(self) -> bool:
        """The first fault is what was planted."""
        return self.first == self.planted


@dataclass(frozen=True)
class Cleared:
    """What the doctor said of a sound model."""

    name: str
    says: str
    made: int
    """Checks that were made on it."""
    alarms: list[str]
    warnings: list[str]


def all_mistakes() -> list[Mistake]:
    """Every planted mistake."""
    return [mistake for module in (masks, structure, training) for mistake in mistakes_in(module)]


def try_mistake(mistake: Mistake, *, training: bool | None = None) -> Named:
    """Examine a patient with a mistake; by default with the checks that train only if one of them has to name it.

    What they find comes last anyway, and they take most of the time.
    """
    if training is None:
        training = any(check.trains and check.name == mistake.check for check in CHECKS)
    faults = [finding.check for finding in run_checks(mistake.make(), training=training).faults]
    first = faults[0] if faults else None
    return Named(mistake.name, mistake.says, mistake.seen, mistake.check, first, faults[1:])


def try_sound(make: Callable[[], Patient]) -> Cleared:
    """Examine a patient without a mistake."""
    report = run_checks(make())
    made = sum(finding.verdict != "not measured" for finding in report.findings)
    alarms, warnings = [f.check for f in report.faults], [f.check for f in report.warnings]
    return Cleared(report.subject, (make.__doc__ or "").strip().split("\n")[0], made, alarms, warnings)


def to_markdown(named: list[Named], cleared: list[Cleared]) -> str:
    """Both tables."""
    right, alarms = sum(row.is_named for row in named), sum(len(row.alarms) for row in cleared)
    lines = [
        f"{right} of {len(named)} planted mistakes are named first; "
        f"{alarms} false alarms on {len(cleared)} sound models.",
        "",
        "| planted mistake | check that has to name it | first fault named | faults that follow |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row.says} (`{row.name}`) | {row.planted} | {row.first or '**nothing**'} | {', '.join(row.also) or '—'} |"
        for row in named
    ]
    lines += ["", "| sound model | checks made | false alarms | warnings |", "|---|---:|---|---|"]
    lines += [
        f"| {row.says} | {row.made} | {', '.join(row.alarms) or 'none'} | {', '.join(row.warnings) or 'none'} |"
        for row in cleared
    ]
    return "\n".join(lines)


def put_between_marks(page: str, table: str) -> str:
    """The page with the table in place of the old one."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main(page: Path, data: Path) -> int:
    """Try all, write both files; the exit code says whether all is as it should be."""
    began = time.monotonic()
    named, cleared = [], []
    for mistake in all_mistakes():
        named.append(try_mistake(mistake))
        print(f"{'named ' if named[-1].is_named else 'MISSED'} {mistake.name}: {named[-1].first}", flush=True)
    for make in (*sound.SOUND, *sound.SOUND_TRANSFORMERS):
        try:
            cleared.append(try_sound(make))
        except ConfigError as error:
            print(f"not tried: {make.__name__}: {error}")
            continue
        print(
            f"{'ALARM' if cleared[-1].alarms else 'sound'}  {cleared[-1].name}: {cleared[-1].alarms or '—'}", flush=True
        )
    missed, alarms = [row.name for row in named if not row.is_named], [row.name for row in cleared if row.alarms]
    summary = {
        "planted": len(named),
        "named": len(named) - len(missed),
        "false_alarms": sum(len(r.alarms) for r in cleared),
    }
    rows = {"mistakes": [asdict(row) for row in named], "sound": [asdict(row) for row in cleared]}
    data.write_text(json.dumps({**summary, **rows}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    page.write_text(put_between_marks(page.read_text("utf-8"), to_markdown(named, cleared)), encoding="utf-8")
    print(f"{summary}, {time.monotonic() - began:.0f} s")
    return int(bool(missed or alarms))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
