"""`clearhead inspect`: what a run's attention looks at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from clearhead.decoding.translator import Translator
    from clearhead.evaluation import ReferenceSet
    from clearhead.inspection.heads import Head
    from clearhead.inspection.sentence import Inspection


def inspect(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    text: Annotated[
        str | None,
        typer.Argument(
            help="A text; not needed with --heads and --ablate-heads, not possible with --training.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[str | None, typer.Option(help="Look at this translation instead of decoding one.")] = None,
    kind: Annotated[str, typer.Option(help="Which attention: encoder, decoder (both self) or cross.")] = "cross",
    layer: Annotated[int | None, typer.Option(help="Counted from 0; default: the sharpest head's.")] = None,
    head: Annotated[int | None, typer.Option(help="Counted from 0; default with --layer: the mean of all.")] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(help="Switch this head off, for example cross.0.3. Repeatable.", show_default=False),
    ] = None,
    alternatives: Annotated[int, typer.Option(help="Likeliest tokens kept for each step.", min=1)] = 5,
    beam_size: Annotated[int | None, typer.Option(help="1 is greedy; default: the recipe's.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to explore: one file, no network.")] = None,
    png: Annotated[
        Path | None, typer.Option(help="Draw the map or the curves to this file (.png, .svg, .pdf).")
    ] = None,
    grid: Annotated[bool, typer.Option("--grid", help="--png draws all heads of the kind, layers by heads.")] = False,
    heads: Annotated[bool, typer.Option("--heads", help="Rank all heads by what they do over a data set.")] = False,
    by: Annotated[
        str, typer.Option(help="Rank by entropy, confidence, distance, diagonality, on_start, on_end, on_padding.")
    ] = "entropy",
    ablate_heads: Annotated[
        bool, typer.Option("--ablate-heads", help="Switch off one head after the other; what does it cost?")
    ] = False,
    metric: Annotated[
        str | None, typer.Option(help="With --ablate-heads, beside the loss: bleu, exact_match, wer … (slower).")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="Data for --heads and --ablate-heads; default: the validation set.")
    ] = None,
    lines: Annotated[int, typer.Option(help="Take so many sources of the data at most.", min=1)] = 500,
    training: Annotated[
        bool, typer.Option("--training", help="Show the curves of the training, a running one's too.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
) -> None:
    """Show what attention looks at, a text's maps or what the heads do over a data set; or how the training went.

    For a text: the translation, a map of one head (default: the sharpest), and for each token its probability, the
    source token it is aligned to, and what could have been written instead. --html writes a page with all heads of
    all layers. --training shows losses and learning rate, and gradients, activations, updates and heads by layer where
    the recipe's [diagnostics] recorded them.
    For a text in a GPT, a LLaMA or a BERT: a map, and how likely each of its tokens is; --png draws.

    \b
    Examples:
      clearhead inspect runs/dates "11 novembre 1918"
      clearhead inspect runs/dates "11 novembre 1918" --html attention.html
      clearhead inspect runs/dates "2024年2月29日" --kind encoder --layer 1 --head 2 --png head.png
      clearhead inspect runs/dates "2024年2月29日" --png heads.png --grid
      clearhead inspect runs/dates --heads --by diagonality
      clearhead inspect runs/dates --ablate-heads --metric exact_match --pairs test.tsv
      clearhead inspect runs/dates "11 novembre 1918" --without cross.0.2 --without cross.1.3
      clearhead inspect runs/dates --training --png training.png
      clearhead inspect runs/reference "The value of the expression"
    """
    import sys
    from contextlib import ExitStack

    from rich.console import Console

    from clearhead.cli.inspect_text import has_one_side, inspect_text
    from clearhead.decoding.translator import load
    from clearhead.errors import ConfigError
    from clearhead.evaluation.metrics import check_names
    from clearhead.inspection.heads import heads_off, parse_head
    from clearhead.inspection.statistics import MEASURES

    console = Console(highlight=False)
    if training:
        if text is not None or heads or ablate_heads or html is not None:
            raise ConfigError("--training shows the run's training and nothing else: leave out texts, --html, --heads")
        _show_training(run, png, console)
        return
    if text is None and not (heads or ablate_heads):
        raise ConfigError("nothing to look at: give a text, or --heads, --ablate-heads or --training")
    if by not in MEASURES:
        raise ConfigError(f"--by {by}: choose one of {', '.join(MEASURES)}")
    if metric is not None:
        check_names([metric], "13a")
    if has_one_side(run):
        if heads or ablate_heads or without or html:
            raise ConfigError(
                f"{run}: of a model with one side there are a text's maps, here or with --png; no more yet"
            )
        inspect_text(run, text, layer=layer, head=head, png=png, grid=grid, device=device, console=console)
        return
    translator = load(run, device=device)
    with ExitStack() as stack:
        stack.enter_context(heads_off(translator.model, [parse_head(name, translator.model) for name in without or []]))
        if text is not None:
            changes = {} if beam_size is None else {"beam_size": beam_size}
            inspection = translator.inspect(text, target=target, alternatives=alternatives, **changes)
            for note in inspection.notes:
                print(note, file=sys.stderr)
            place = _place(inspection, kind, layer, head)
            _print_inspection(inspection, *place, console)
            _write_pictures(inspection, *place, html=html, png=png, grid=grid, console=console)
        if heads or ablate_heads:
            data = _data(run, pairs, lines)
            if heads:
                _print_heads(translator, data, by, console)
            if ablate_heads:
                _print_ablation(translator, data, run, metric, console)


def _place(inspection: Inspection, kind: str, layer: int | None, head: int | None) -> tuple[str, int, int | None]:
    """Which map to show: that asked for, or the sharpest head's. Raises `ConfigError` for one that there is not."""
    from clearhead.errors import ConfigError

    inspection.maps(kind)  # it checks the kind
    if layer is None and head is not None:
        raise ConfigError(f"--head {head} of which layer? Give --layer too")
    if layer is None:
        return (kind, *inspection.sharpest(kind))
    inspection.weights(kind, layer, head)
    return kind, layer, head


def _print_inspection(inspection: Inspection, kind: str, layer: int, head: int | None, console: Console) -> None:
    """The translation, the map, and a line for each token."""
    from rich.markup import escape
    from rich.table import Table

    from clearhead.inspection.heatmap import render_heatmap

    console.print(f"{escape(inspection.source)}\n→ [bold]{escape(inspection.translation)}[/]", soft_wrap=True)
    console.print(f"log-probability {inspection.log_probability:.4f}\n")
    queries, keys = inspection.labels(kind)
    weights = inspection.weights(kind, layer, head)
    which = f"mean of the heads of layer {layer}" if head is None else f"layer {layer}, head {head}"
    legend = f"[bold]{kind} attention[/], {which}: a line is a token that looks, a column one looked at"
    console.print(legend, soft_wrap=True)
    width = console.width if console.is_terminal else None  # a file has no edge
    console.print(render_heatmap(weights, queries, keys, width=width), markup=False, soft_wrap=True)

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("wrote")
    table.add_column("probability", justify="right")
    table.add_column("comes from")
    table.add_column("or else", style="dim")
    for step, place in zip(inspection.steps, inspection.alignment, strict=True):
        others = [one for one in step.alternatives if one.token != step.token][:3]
        table.add_row(
            escape(step.token),
            f"{step.probability:.4f}",
            f"{escape(inspection.source_tokens[place])} [dim]({place})[/]",
            escape("  ".join(f"{one.token} {one.probability:.4f}" for one in others if one.probability >= 5e-5)),
        )
    console.print()
    console.print(table, soft_wrap=not console.is_terminal)


def _write_pictures(
    inspection: Inspection, kind: str, layer: int, head: int | None,
    *, html: Path | None, png: Path | None, grid: bool, console: Console,
) -> None:  # fmt: skip
    """The files that were asked for, each whole or not there."""
    from clearhead.errors import ConfigError
    from clearhead.run_folder import write_text_atomically

    if grid and png is None:
        raise ConfigError("--grid says what --png FILE draws; give that too")
    if html is not None:
        if html.is_dir():
            raise ConfigError(f"--html {html}: that is a folder; name a file")
        write_text_atomically(html, inspection.to_html())
        console.print(f"\n{html}: open it in a browser ({html.stat().st_size / 1000:,.0f} kB)", markup=False)
    if png is not None:
        from clearhead.inspection.plot import save_figure

        figure = inspection.plot(kind) if grid else inspection.plot(kind, layer, head)
        save_figure(figure, png)
        console.print(f"\n{png}: written", markup=False)


def _data(run: Path, pairs: Path | None, lines: int) -> ReferenceSet:
    """The first sources of a file of pairs, or of the run's validation set."""
    import dataclasses

    from clearhead.cli.evaluate import validation_set
    from clearhead.evaluation.reference_sets import from_corpus_files
    from clearhead.text.readers import CorpusFiles

    data = validation_set(run) if pairs is None else from_corpus_files(CorpusFiles(pairs=pairs))
    return dataclasses.replace(data, sources=data.sources[:lines], references=data.references[:lines])


def _print_heads(translator: Translator, data: ReferenceSet, by: str, console: Console) -> None:
    """All heads, the most telling first."""
    from rich.table import Table

    from clearhead.evaluation.heads import measure_heads
    from clearhead.inspection.statistics import ranked

    labels = {
        "entropy": "entropy", "relative_entropy": "relative", "confidence": "confident", "distance": "distance",
        "diagonality": "diagonal", "on_start": "start", "on_end": "end", "on_padding": "pad",
    }  # fmt: skip
    found = ranked(measure_heads(translator, data), by)
    title = f"Heads by {by}, over {len(data)} sources of {data.name}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("head", no_wrap=True)
    for name, label in labels.items():
        table.add_column(label, justify="right", style="bold" if name == by else None, no_wrap=True)
    for one in found:
        table.add_row(str(one.head), *(f"{getattr(one, name):.3f}" for name in labels))
    console.print(table)
    console.print(
        "entropy: in nats, and relative to the most possible. confident: the largest weight. distance: in tokens. "
        "diagonal: 1 looks at its own place. The rest: shares of attention on control tokens.",
        style="dim",
    )


def _print_ablation(
    translator: Translator, data: ReferenceSet, run: Path, metric: str | None, console: Console
) -> None:
    """What the run is worth without each head, the dearest first."""
    from rich.console import Console
    from rich.table import Table

    from clearhead.cli.evaluate import target_separator
    from clearhead.evaluation.heads import ablate_heads
    from clearhead.inspection.heads import all_heads

    every = all_heads(translator.model)
    groups: list[tuple[Head, ...]] = [(), *((head,) for head in every)]
    with Console(stderr=True).status("switching off …") as status:
        whole, *found = ablate_heads(
            translator, data, groups, metric=metric, separator=target_separator(run),
            on_progress=lambda done: status.update(f"switching off head {done} of {len(every)} …"),
        )  # fmt: skip
    table = Table(title=f"Without one head, over {len(data)} sources of {data.name}", title_justify="left")
    columns = ("off", "loss", "change") if metric is None else ("off", "loss", "change", metric, "change")
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left")
    for one in [whole, *sorted(found, key=lambda ablation: -ablation.loss)]:
        row = [str(one.heads[0]) if one.heads else "none", f"{one.loss:.4f}", f"{one.loss - whole.loss:+.4f}"]
        if one.score is not None and whole.score is not None:
            row += [f"{one.score:.2f}", f"{one.score - whole.score:+.2f}"]
        table.add_row(*row)
    console.print(table)
    console.print("Loss in nats per target token: the more it rises, the more the head was needed.", style="dim")


def _show_training(run: Path, png: Path | None, console: Console) -> None:
    """The curves of the log, in the terminal or as a picture, and the warnings that were given."""
    from rich.markup import escape

    from clearhead.errors import RunError
    from clearhead.inspection.training_curves import describe_progress, read_log, training_panels
    from clearhead.run_folder import RunFolder
    from clearhead.training.diagnostics import warnings_in

    folder = RunFolder(run)
    records = read_log(folder)
    panels = training_panels(records)
    if not panels:
        raise RunError(f"{folder.metrics}: what is recorded there are no numbers")
    title = f"{run}: {describe_progress(records, folder)}"
    if png is not None:
        from clearhead.inspection.plot import save_figure
        from clearhead.inspection.training_plot import plot_training

        save_figure(plot_training(panels, title), png)
        console.print(f"{png}: written", markup=False, soft_wrap=True)
    else:
        from clearhead.inspection.sparklines import render_panels

        console.print(f"[bold]{escape(title)}[/]\n", soft_wrap=True)
        console.print(render_panels(panels, width=console.width))
    for update, text in warnings_in(records):
        console.print(f"\nat update {update:,}: {text}", markup=False, soft_wrap=True)
    if not any(record["event"] == "diagnostics" for record in records):
        hint = "Nothing was recorded inside the model: [diagnostics] every = 100 in the recipe does that."
        console.print(f"\n{hint}", style="dim", markup=False, soft_wrap=True)
