"""How a result is shown: in the terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clearhead.experiments.result import Cell, Result, Table
from clearhead.experiments.topics import Topic


def as_page(results: Sequence[tuple[Topic, Result]], command: str, pictures: str | None) -> str:
    """All of `docs/explain.md`: what it is, the answers in short, and a section for each topic with its picture."""
    import torch

    from clearhead import __version__

    answers = Table("", ("topic", "what it is about", "the claim"), [(t.name, t.title, r.answer) for t, r in results])
    threads = torch.get_num_threads()
    parts = [
        "# Every claim as an experiment",
        "What the textbook claims of the Transformer's parts, measured by this project's own parts. Where a claim is "
        "true only in part, the verdict says so, with the numbers. `clearhead explain TOPIC` runs one of them in "
        "under a minute on two cores, `--plot FILE` draws it, `--seed N` draws other data and weights, `--full` "
        "measures more.",
        "This page is the output of",
        f"```console\n$ {command}\n```",
        f"by Clearhead {__version__} and torch {torch.__version__} on {threads} thread{'s' if threads > 1 else ''} of "
        "a CPU. Times depend on the machine, and on another one the last digits of the rest do too.",
        markdown_table(answers),
    ]
    return "\n\n".join([*parts, *(as_markdown(topic, result, pictures).rstrip() for topic, result in results)]) + "\n"


def as_markdown(topic: Topic, result: Result, pictures: str | None = None) -> str:
    """A section of `docs/explain.md`; `pictures` is the folder that its chart lies in, seen from the page."""
    chart = result.chart
    parts = [
        f"## {topic.name}: {topic.title}",
        f"**Claim.** {topic.claim}",
        f"```text\n{topic.formula}\n```",
        *(f"{table.title}\n\n{markdown_table(table)}" for table in result.tables),
        *result.notes,
        *([f"![{chart.title}: {chart.y} by {chart.x}]({pictures}/{topic.name}.png)"] if pictures else []),
        f"**Verdict: {result.answer}.** {result.verdict}",
    ]
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """The table in pipes; numbers stand on the right."""
    right = [_is_numeric(column) for column in zip(*table.rows, strict=True)]
    rule = ["---:" if numeric else "---" for numeric in right]
    lines = [list(table.columns), rule, *([readable(cell) for cell in row] for row in table.rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def print_result(topic: Topic, result: Result) -> None:
    """Claim, formula, tables and verdict in the terminal."""
    from rich.console import Console
    from rich.table import Table as TerminalTable
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(f"{topic.name}: {topic.title}", style="bold"), "\n")
    console.print(Text.assemble(("Claim    ", "bold"), topic.claim), "\n")
    console.print(Text("Formula", style="bold"))
    console.print(Text("\n".join(f"  {line}" for line in topic.formula.splitlines())), "\n")
    for table in result.tables:
        shown = TerminalTable(title=Text(table.title), title_justify="left", title_style="bold")
        for name, column in zip(table.columns, zip(*table.rows, strict=True), strict=True):
            shown.add_column(Text(name), justify="right" if _is_numeric(column) else "left")
        for row in table.rows:
            shown.add_row(*(Text(readable(cell)) for cell in row))
        console.print(shown)
    for note in result.notes:
        console.print(Text(note))
    console.print()
    console.print(Text.assemble((f"Verdict: {result.answer}. ", "bold"), result.verdict))


def readable(cell: Cell) -> str:
    """A number with three or four digits that matter; text as it is."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if cell == 0 or 1e-3 <= abs(cell) < 1e5:
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
    return f"{cell:.1e}"


def _is_numeric(column: Iterable[Cell]) -> bool:
    return any(not isinstance(cell, str) for cell in column)
