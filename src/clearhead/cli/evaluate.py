"""`clearhead evaluate`: how good a run is, or a file of outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from clearhead.evaluation import ReferenceSet


def evaluate(
    run: Annotated[
        Path | None,
        typer.Argument(help="A run folder; not needed with --outputs and data of your own.", show_default=False),
    ] = None,
    source: Annotated[Path | None, typer.Option(help="A file of sources …")] = None,
    reference: Annotated[
        list[Path] | None, typer.Option(help="… and of references, line for line. Repeatable.", show_default=False)
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="Or one file of pairs; lines with the same source are merged.")
    ] = None,
    references_in_columns: Annotated[
        bool, typer.Option("--references-in-columns", help="--pairs has lines of source TAB reference [TAB reference]…")
    ] = False,
    outputs: Annotated[Path | None, typer.Option(help="Measure the lines of this file instead of decoding.")] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Another run, or a file of outputs: is the difference more than chance?")
    ] = None,
    save_outputs: Annotated[Path | None, typer.Option(help="Write the outputs to this file.")] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Only these: some of exact_match,wer,per,cer,bleu,chrf2,chrf2pp,ter.")
    ] = None,
    tokenize: Annotated[
        str, typer.Option(help="BLEU's tokenizer: 13a; none, if the text is tokenised; zh, intl or char.")
    ] = "13a",
    separator: Annotated[
        str | None, typer.Option(help="Between the symbols of PER; default: as in the run's targets, or a space.")
    ] = None,
    beam_size: Annotated[int | None, typer.Option(help="1 is greedy; default: the recipe's.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Alpha; 0 favours short outputs.")] = None,
    max_length_ratio: Annotated[
        float | None, typer.Option(help="Output tokens for each source token, at most …")
    ] = None,
    max_length_extra: Annotated[int | None, typer.Option(help="… and this many more.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Hypotheses decoded side by side.")] = None,
    draws: Annotated[int, typer.Option(help="Resamples of --compare.", min=1, max=1_000_000)] = 1000,
    seed: Annotated[int, typer.Option(help="Of the resamples.", min=0)] = 12345,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    precision: Annotated[
        str, typer.Option(help="float32; on a CPU int16: faster, nearly as exact; or int8: faster still.")
    ] = "float32",
) -> None:
    """Measure a run on its validation set or on data of your own, or measure a file of outputs.

    Prints exact match and WER (a line is right if it equals any of its references), PER and CER (edits per symbol
    and per character, to the nearest reference), BLEU, chrF2, chrF2++ and TER with sacrebleu's signatures; and, where
    the run decoded, its loss and perplexity on the references.

    \b
    Examples:
      clearhead evaluate runs/dates
      clearhead evaluate runs/m30k --source test.en --reference test.de --tokenize none --save-outputs out.de
      clearhead evaluate runs/cmudict --pairs g014b2b.ref --references-in-columns --metrics wer,per --json
      clearhead evaluate --outputs out.de --reference test.de
      clearhead evaluate runs/new --pairs test.tsv --compare runs/old
      clearhead evaluate runs/dates --precision int16
    """
    from rich.console import Console

    from clearhead.decoding.options import DecodingOptions
    from clearhead.errors import ConfigError
    from clearhead.evaluation import compare_outputs, evaluate_outputs, with_loss
    from clearhead.evaluation.metrics import METRICS, check_names
    from clearhead.evaluation.report import print_comparison, print_scores, to_json
    from clearhead.run_folder import write_text_atomically

    wanted = METRICS if metrics is None else [name.strip() for name in metrics.split(",")]
    check_names(wanted, tokenize)  # a mistake shows now, and not after the decoding
    if run is None and outputs is None:
        raise ConfigError("give a run folder to decode with, or --outputs FILE with lines to measure")
    options = {
        "beam_size": beam_size, "length_penalty": length_penalty, "max_length_ratio": max_length_ratio,
        "max_length_extra": max_length_extra, "batch_size": batch_size,
    }  # fmt: skip
    changes = {name: value for name, value in options.items() if value is not None}
    DecodingOptions(**changes)  # type: ignore[arg-type]  # it checks the values
    data = _reference_set(run, source, reference or [], pairs, references_in_columns)
    separator = target_separator(run) if separator is None else separator

    console = Console()
    loss = None
    if outputs is not None:
        texts = _read_outputs(outputs, data)
    elif run is not None:
        texts, loss = _decode(run, data, changes, device, precision)
    others = None
    if compare is not None:
        others = (
            _decode(compare, data, changes, device, precision)[0] if compare.is_dir() else _read_outputs(compare, data)
        )
    if save_outputs is not None:
        write_text_atomically(save_outputs, "".join(f"{text}\n" for text in texts))

    scores = evaluate_outputs(texts, data.references, metrics=wanted, separator=separator, bleu_tokenizer=tokenize)
    if loss is not None:
        scores = with_loss(scores, loss)
    comparisons = []
    if others is not None:
        comparisons = compare_outputs(
            texts, others, data.references, metrics=wanted, separator=separator, bleu_tokenizer=tokenize,
            draws=draws, seed=seed,
        )  # fmt: skip
    if as_json:
        print(to_json(scores, comparisons))
        return
    print_scores(scores, title=f"{outputs or run} on {data.name}", console=console)
    if compare is not None:
        print_comparison(comparisons, first=str(outputs or run), second=str(compare), draws=draws, console=console)


def _reference_set(
    run: Path | None, source: Path | None, references: list[Path], pairs: Path | None, in_columns: bool
) -> ReferenceSet:
    """The data that the options name; the run's validation set if they name none. Raises `ConfigError`."""
    from clearhead.errors import ConfigError
    from clearhead.evaluation.reference_sets import from_aligned_files, from_corpus_files, from_reference_columns
    from clearhead.text.readers import CorpusFiles

    if pairs is not None and (source is not None or references):
        raise ConfigError("give either --pairs or --source and --reference")
    if in_columns and pairs is None:
        raise ConfigError("--references-in-columns says how --pairs FILE is to be read; give that too")
    if source is not None and not references:
        raise ConfigError(f"--source {source} needs what to measure against: --reference FILE")
    if pairs is not None:
        return from_reference_columns(pairs) if in_columns else from_corpus_files(CorpusFiles(pairs=pairs))
    if references:
        return from_aligned_files(source, references)
    if run is None:
        raise ConfigError("what is --outputs to be measured against? Give --reference FILE, --pairs FILE, or a run")
    return validation_set(run)


def validation_set(run: Path) -> ReferenceSet:
    """The pairs that the run was validated on: its recipe's, or those held out of its training data.

    As in training, a source that occurs several times is one test with several right answers.
    """
    from clearhead.errors import ConfigError
    from clearhead.evaluation.reference_sets import from_pairs
    from clearhead.run_folder import RunFolder
    from clearhead.training.data import split_pairs

    recipe = RunFolder(run).require().read_recipe()
    try:
        split = split_pairs(recipe.data, recipe.run.seed, lambda message: None)
    except ConfigError as error:
        raise ConfigError(
            f"the validation set of {run}: {error}; or measure on other data: --pairs, or --source and --reference"
        ) from None
    pairs = ((pair.source, [pair.target]) for pair in split.valid_pairs())
    return from_pairs("its validation set", pairs, merge=True)


def target_separator(run: Path | None) -> str:
    """What stands between the symbols of the run's targets, if they are symbols; a space for any other text."""
    from clearhead.run_folder import RunFolder

    if run is None or RunFolder(run).require().imported.exists():
        return " "
    kind, _, separator = RunFolder(run).require().read_recipe().tokenizer.side("target")
    return separator if kind == "word" else " "


def _read_outputs(path: Path, data: ReferenceSet) -> list[str]:
    from clearhead.text.readers import read_lines

    return data.align_outputs(list(read_lines(path)), str(path))


def _decode(
    run: Path, data: ReferenceSet, changes: dict[str, int | float], device: str, precision: str
) -> tuple[list[str], float]:
    """The run's outputs, and its loss on the references."""
    from rich.console import Console

    from clearhead.decoding.translator import load
    from clearhead.errors import ConfigError
    from clearhead.evaluation.runs import reference_loss, translate_set

    if not any(data.sources):
        raise ConfigError(f"to decode with {run}, the sources are needed too: --source FILE")
    translator = load(run, device=device, precision=precision)
    with Console(stderr=True).status(f"decoding {len(data):,} lines with {run} …"):
        return translate_set(translator, data, changes), reference_loss(translator, data)
