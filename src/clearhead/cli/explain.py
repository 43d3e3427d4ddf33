"""`clearhead explain`: a claim of the textbook, run as an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def explain(
    topic: Annotated[str | None, typer.Argument(help="Which claim; none: list them.", show_default=False)] = None,
    full: Annotated[bool, typer.Option("--full", help="Measure more: minutes, not seconds.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw it to this file (.png, .svg, .pdf); --all: to this folder.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of everything that is drawn at random.")] = 1,
    everything: Annotated[bool, typer.Option("--all", help="Every topic, one after the other.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown; with --all the page docs/explain.md.")
    ] = False,
) -> None:
    """Run the experiment behind a claim: the claim, its formula, what was measured, and a verdict.

    Each takes under a minute on two cores. Where a claim is true only in part the verdict says so, with numbers.

    \b
    Examples:
      clearhead explain                                # the topics
      clearhead explain scaling
      clearhead explain positions --plot positions.png
      clearhead explain residual --full --seed 7
      clearhead explain --all --markdown --plot docs/explain > docs/explain.md
    """
    import sys

    from clearhead.errors import ConfigError
    from clearhead.experiments.report import as_markdown, as_page, print_result
    from clearhead.experiments.result import Effort
    from clearhead.experiments.topics import all_topics, find_topic

    if topic is not None and everything:
        raise ConfigError(f"give either a topic ({topic!r}) or --all")
    if plot is not None and topic is None and not everything:
        raise ConfigError("--plot draws a topic: name it, or give --all")
    if plot is not None:
        from clearhead.experiments.plot import draw, require_plot

        require_plot(plot / "all.png" if everything else plot)
    if topic is None and not everything:
        for known in all_topics():
            print(f"{known.name:16} {known.title}")
        return
    results = []
    for chosen in all_topics() if topic is None else [find_topic(topic)]:
        result = chosen.run(Effort.FULL if full else Effort.NORMAL, seed)
        results.append((chosen, result))
        if not markdown:
            print_result(chosen, result)
        elif not everything:
            print(as_markdown(chosen, result), end="")
        else:
            print(f"{chosen.name}: {result.answer}", file=sys.stderr)
        if plot is not None:
            draw(result.chart, plot / f"{chosen.name}.png" if everything else plot)
    if everything and markdown:
        changes = "".join(
            [" --full" if full else "", f" --seed {seed}" if seed != 1 else "", f" --plot {plot}" if plot else ""]
        )
        command = f"clearhead explain --all --markdown{changes} > docs/explain.md"
        print(as_page(results, command, plot.name if plot else None), end="")
