"""`clearhead vectors` and `clearhead fill-mask`: what a BERT is for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def vectors(
    run: Annotated[Path, typer.Argument(help="A run folder of a BERT.", show_default=False)],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts; without any, the lines of standard input.", show_default=False)
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON list a text: its vector.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
) -> None:
    """Turn texts into vectors: the mean of their tokens' states. Prints the cosine of each with each.

    \b
    Examples:
      clearhead vectors runs/minilm "A cat sits." "A kitten is sitting." "Stocks fell."
      clearhead vectors runs/minilm --json < sentences.txt > vectors.jsonl
    """
    import json
    import sys

    from clearhead.decoding.loading import load_encoder
    from clearhead.text.lines import read_lines

    encoder = load_encoder(run, device=device)
    lines = texts or list(read_lines(sys.stdin.buffer))
    if json_lines:
        for vector in encoder.vectors(lines).tolist():
            print(json.dumps(vector))
        return
    for text, row in zip(lines, encoder.similarities(lines).tolist(), strict=True):
        print("  ".join(f"{cosine:6.3f}" for cosine in row), text, sep="  ")


def fill_mask(
    run: Annotated[Path, typer.Argument(help="A run folder of a BERT.", show_default=False)],
    text: Annotated[str, typer.Argument(help="A text with [MASK] in it, once or more.", show_default=False)],
    n_best: Annotated[int, typer.Option(help="Guesses for each place.", min=1)] = 5,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
) -> None:
    """Guess the masked tokens of a text: one line for each guess, its probability and its token.

    \b
    Examples:
      clearhead fill-mask runs/bert "Paris is the [MASK] of France."
    """
    from clearhead.decoding.loading import load_encoder

    for place, guesses in enumerate(load_encoder(run, device=device).fill_mask(text, n_best=n_best)):
        if place:
            print()
        for guess in guesses:
            print(f"{guess.probability:.4f}\t{guess.token}")
