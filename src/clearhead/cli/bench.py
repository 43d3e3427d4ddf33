"""`clearhead bench`: how fast a run translates on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from clearhead.evaluation.speed import Speed


def bench(
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN", show_default=False)],
    source: Annotated[
        Path | None, typer.Option(help="Lines to translate; default: the run's validation set.", show_default=False)
    ] = None,
    lines: Annotated[int, typer.Option(help="Translate the first so many, at most.", min=1)] = 500,
    rounds: Annotated[int, typer.Option(help="How often; the median counts.", min=1)] = 3,
    beam_size: Annotated[int | None, typer.Option(help="1 is greedy; default: the recipe's.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    precision: Annotated[
        str, typer.Option(help="float32; on a CPU int16: faster, nearly as exact; or int8: faster still.")
    ] = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure a run on this machine: sentences and tokens a second, the time of one sentence alone, memory.

    "Of the peak" is what the work needs (no padding) over the rate of large float32 matrix products, measured in the
    same call. Keep the machine quiet meanwhile.

    \b
    Examples:
      clearhead bench runs/dates
      clearhead bench runs/multi30k-en-de --source test.en --beam-size 1 --json
    """
    import dataclasses
    import json
    from itertools import islice

    from clearhead.cli.evaluate import validation_set
    from clearhead.decoding.translator import load
    from clearhead.errors import ConfigError
    from clearhead.evaluation.speed import measure_speed
    from clearhead.text.lines import is_blank, read_lines

    changes = {} if beam_size is None else {"beam_size": beam_size}
    translator = load(run, device=device, precision=precision)
    texts = validation_set(run).sources if source is None else read_lines(source)
    sources = list(islice((text for text in texts if not is_blank(text)), lines))
    if not sources:
        raise ConfigError(f"{source or run}: no line to translate")
    speed = measure_speed(translator, sources, rounds=rounds, **changes)
    if as_json:
        print(json.dumps({**dataclasses.asdict(speed), "share_of_peak": speed.share_of_peak}))
    else:
        _print_table(str(run), speed)


def _print_table(title: str, speed: Speed) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("sentences a second", f"{speed.sentences_per_second:,.1f}")
    table.add_row("output tokens a second", f"{speed.tokens_per_second:,.0f}")
    table.add_row("one sentence alone", f"{1000 * speed.latency:,.1f} ms")
    if speed.peak_memory is not None:
        table.add_row("memory at the peak", f"{speed.peak_memory / 2**20:,.0f} MiB")
    table.add_row("of the matrix-product peak", f"{speed.share_of_peak:.1%}")
    table.add_row("which is", f"{speed.peak_flops / 1e9:,.0f} GFLOP/s")
    Console().print(table)
