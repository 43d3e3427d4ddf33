"""Findings on a terminal: what is wrong first of all, then what may be, and what was found to be right."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clearhead.doctor.finding import Finding, Report

SIGNS = {"fault": "[bold red]✗[/]", "warning": "[bold yellow]![/]", "fine": "[green]✓[/]", "not measured": "[dim]·[/]"}


def print_report(report: Report, console: Console, *, details: bool = False) -> None:
    """Print a report; with `details` also the measurements of what is fine, and why something wasn't measured."""
    console.print(f"[bold]{escape(report.subject)}[/]", highlight=False)
    for finding in (*report.faults, *report.warnings):
        _print_problem(finding, console)
    table = Table(show_header=False, box=None, padding=(0, 1), expand=False)
    for finding in report.findings:
        shown = finding.measured if details else finding.title
        table.add_row(SIGNS[finding.verdict], finding.check, escape(shown))
    console.print()
    console.print(table, highlight=False)
    console.print()
    console.print(summary(report), highlight=False)


def _print_problem(finding: Finding, console: Console) -> None:
    color = "red" if finding.is_fault else "yellow"
    console.print(
        f"\n[bold {color}]{finding.verdict.upper()}[/] [bold]{finding.check}[/]: {escape(finding.title)}",
        highlight=False,
    )
    console.print(f"  measured  {escape(finding.measured)}", highlight=False)
    for name, lines in (("likely", finding.causes), ("look at", finding.look_at)):
        for place, line in enumerate(lines):
            console.print(f"  {name if place == 0 else '':<9} {escape(line)}", highlight=False)


def summary(report: Report) -> str:
    """One sentence. Where there are several faults, the first is where to begin."""
    measured = sum(finding.verdict != "not measured" for finding in report.findings)
    counts = f"{measured} of {len(report.findings)} checks made"
    if not report.faults:
        warned = f", {len(report.warnings)} to look at" if report.warnings else ""
        return f"No fault found ({counts}{warned})."
    first = report.faults[0]
    rest = " Mend it first: the others may follow from it." if len(report.faults) > 1 else ""
    faults = f"{len(report.faults)} fault{'s' if len(report.faults) > 1 else ''}"
    return f"{faults}, the first {first.check}: {first.title} ({counts}).{rest}"
