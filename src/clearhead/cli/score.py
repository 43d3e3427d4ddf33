"""`clearhead score`: how likely the model finds given pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def score(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    source: Annotated[Path | None, typer.Option(help="A file of sources …")] = None,
    target: Annotated[Path | None, typer.Option(help="… and the file of their targets, line for line.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Or one file of pairs (.tsv .csv .jsonl …, .gz too).")] = None,
    text: Annotated[
        Path | None, typer.Option(help="For a GPT or a LLaMA: a file of texts, one a line.", show_default=False)
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
) -> None:
    """Print each pair's log-probability, its number of target tokens, and its perplexity, separated by tabs.

    For a model without a source the same of each text.

    The log-probability is the natural logarithm, summed over the target's tokens and the end token: the same that
    `translate --scores` prints for its own outputs.

    \b
    Examples:
      clearhead score runs/dates --pairs more-dates.tsv
      clearhead score runs/multi30k-en-de --source test.en --target test.de --json
      clearhead score runs/gpt2 --text stories.txt
    """
    import itertools
    import sys

    from clearhead.decoding.translator import load
    from clearhead.errors import ConfigError
    from clearhead.text.readers import CorpusFiles, read_pairs

    if text is not None:
        _score_texts(run, text, json_lines=json_lines, device=device)
        return
    if (pairs is None) == (source is None and target is None):
        raise ConfigError("give either --source and --target, or --pairs")
    translator = load(run, device=device)
    stream = read_pairs(CorpusFiles(source=source, target=target, pairs=pairs))
    while part := list(itertools.islice(stream, 4096)):
        results = translator.score([pair.source for pair in part], [pair.target for pair in part])
        for pair, result in zip(part, results, strict=True):
            if result.source_cut:
                print(f"line {pair.line}: the source is too long; its end was not read", file=sys.stderr)
            _print_score(result.log_probability, result.tokens, json_lines=json_lines)


def _score_texts(run: Path, texts: Path, *, json_lines: bool, device: str) -> None:
    """The same for texts without a source."""
    import itertools

    from clearhead.decoding.loading import load_generator
    from clearhead.text.lines import read_lines

    generator = load_generator(run, device=device)
    lines = read_lines(texts)
    while part := list(itertools.islice(lines, 1024)):
        for result in generator.score(part):
            _print_score(result.log_probability, result.tokens, json_lines=json_lines)


def _print_score(log_probability: float, tokens: int, *, json_lines: bool) -> None:
    import json
    import math

    perplexity = math.exp(min(700.0, -log_probability / max(1, tokens)))
    fields = {"log_probability": log_probability, "tokens": tokens, "perplexity": perplexity}
    print(json.dumps(fields) if json_lines else "{:.4f}\t{}\t{:.4f}".format(*fields.values()))
