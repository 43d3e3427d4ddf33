"""`clearhead demo`: a first model, from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def demo(
    name: Annotated[Literal["dates", "pinyin", "reference"], typer.Argument(help="Which one.")] = "dates",
    run_dir: Annotated[
        Path | None, typer.Option(help="The run folder; default: runs/ and the demo's name.", show_default=False)
    ] = None,
    retrain: Annotated[bool, typer.Option("--retrain", help="Train again, even if the run is there.")] = False,
) -> None:
    """Train on embedded data, measure on held-out data, use the model, and show what attention looks at.

    "dates" learns to read the written dates of 25 locales, in two minutes on two cores. "pinyin" learns to pronounce
    Chinese phrases, in some 20 minutes on one core. "reference" is a small GPT that learns to go on with Python's
    language reference. A second call finds the finished run and shows its result at
    once; one that was stopped is gone on with.

    \b
    Examples:
      clearhead demo
      clearhead demo pinyin
      clearhead demo reference
      clearhead demo dates --run-dir runs/my-dates --retrain
    """
    from clearhead.demos.run import DEMOS, run_demo

    stopped_by = run_demo(DEMOS[name](), run_dir or Path("runs") / name, retrain=retrain)
    if stopped_by is not None:
        raise typer.Exit(128 + stopped_by)
