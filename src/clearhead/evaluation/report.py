"""The evaluation as people read it (a table) and as programs read it (one JSON object)."""

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from clearhead.evaluation.metrics import Scores
from clearhead.evaluation.significance import Comparison

LABELS = {
    "exact_match": ("exact match", "% of lines equal to a reference"),
    "wer": ("WER", "% of lines equal to none (100 - exact match)"),
    "per": ("PER", "% edits per symbol, nearest reference"),
    "cer": ("CER", "% edits per character, nearest reference"),
    "bleu": ("BLEU", "sacrebleu, higher is better"),
    "chrf2": ("chrF2", "sacrebleu, higher is better"),
    "chrf2pp": ("chrF2++", "sacrebleu, higher is better"),
    "ter": ("TER", "sacrebleu, lower is better"),
    "loss": ("loss", "nats per target token, not smoothed"),
    "perplexity": ("perplexity", "e to the loss"),
}
SIGNIFICANT = 0.05


def print_scores(scores: Scores, *, title: str, console: Console) -> None:
    """A table of what was measured, then sacrebleu's signatures, one a line and unbroken, to be quoted."""
    measured = scores.to_dict()
    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("what it is", style="dim")
    for name, (label, meaning) in LABELS.items():
        if name in measured:
            digits = 4 if name in ("loss", "perplexity") else 2
            table.add_row(label, f"{measured[name]:.{digits}f}", meaning)
    table.add_row("sentences", str(scores.sentences), "")
    console.print(table)
    for name, signature in scores.signatures.items():
        console.print(f"{LABELS[name][0]} signature: {signature}", style="dim", markup=False, soft_wrap=True)


def print_comparison(
    comparisons: Sequence[Comparison], *, first: str, second: str, draws: int, console: Console
) -> None:
    """The paired bootstrap: both scores, their difference, and whether chance explains it."""
    table = Table(title=f"Paired bootstrap, {draws} draws", title_justify="left")
    table.add_column("metric")
    for heading in (first, second, "difference", "p"):
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("reading", style="dim")
    for result in comparisons:
        reading = "real" if result.p_value < SIGNIFICANT else "could be chance"
        table.add_row(
            LABELS[result.metric][0],
            f"{result.first:.2f}",
            f"{result.second:.2f}",
            f"{result.difference:+.2f}",
            f"{result.p_value:.4f}",
            reading,
        )
    console.print(table)


def to_json(scores: Scores, comparisons: Sequence[Comparison] = ()) -> str:
    """One object: the measured keys of `Scores`, and "comparison", by metric, if there is one."""
    report: dict[str, object] = dict(scores.to_dict())
    if comparisons:
        report["comparison"] = {
            result.metric: {
                "first": result.first,
                "second": result.second,
                "difference": result.difference,
                "p_value": result.p_value,
            }
            for result in comparisons
        }
    return json.dumps(report, ensure_ascii=False, allow_nan=False, indent=2)
