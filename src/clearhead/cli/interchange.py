"""`clearhead import` and `clearhead export`: models from elsewhere, and ours for elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def import_model(
    source: Annotated[
        Path,
        typer.Argument(
            help="A Hugging Face folder, a .gguf file, or a .bin of llama2.c.",
            metavar="DIR_OR_FILE",
            show_default=False,
        ),
    ],
    to: Annotated[
        Path | None, typer.Option(help="The run folder; default: runs/ and the name.", show_default=False)
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="The vocabulary of a llama2.c file; default: the tok*.bin beside it.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what was imported there before.")] = False,
) -> None:
    """Read a model that was trained elsewhere into a run folder.

    Families: GPT-2, BERT, LLaMA (1 to 3 and its kin), Marian (opus-mt). A weight or an attribute of the configuration
    that isn't known is an error, for it may change what the model computes. Nothing is downloaded.

    \b
    Examples:
      clearhead import opus-mt-en-de                       # then: clearhead translate runs/opus-mt-en-de "Hello."
      clearhead import SmolLM2-135M-Instruct.Q4_1.gguf --to runs/smollm2
      clearhead import stories260K.bin --tokenizer tok512.bin
    """  # fmt: skip
    from clearhead.cli.info import count_parameters
    from clearhead.cli.next_steps import how_to_use
    from clearhead.interchange.importing import import_model as read_into

    folder = read_into(
        source,
        to or Path("runs") / (source.resolve().name if source.is_dir() else source.stem),
        tokenizer=tokenizer,
        overwrite=overwrite,
    )
    total = count_parameters(folder.model)["total"]
    print(f"{folder}: {folder.read_imported().family}, {total:,} parameters\nTo use it: {how_to_use(folder)}")


def export_model(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    to: Annotated[Literal["hf"], typer.Option(help="hf: a folder that transformers reads.")] = "hf",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The folder; default: beside the run, with -hf behind its name."),
    ] = None,
    family: Annotated[
        Literal["gpt2", "bert", "llama", "marian"] | None,
        typer.Option(help="Default: what it was imported from, or what fits.", show_default=False),
    ] = None,
) -> None:
    """Write a run's model in the layout of another library.

    A model that was imported comes out with the same bits. One that was trained here can be exported if its
    configuration is one that the family has.

    \b
    Examples:
      clearhead export runs/opus-mt-en-de --to hf -o out/opus-mt-en-de
      clearhead export runs/smollm2
    """
    from clearhead.interchange.importing import export_model as write_from

    if to != "hf":
        raise AssertionError(to)
    print(write_from(run, output or run.with_name(f"{run.name}-hf"), family=family))
