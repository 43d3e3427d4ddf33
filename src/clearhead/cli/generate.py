"""`clearhead generate`: going on with a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def generate(
    run: Annotated[Path, typer.Argument(help="A run folder of a GPT or a LLaMA.", show_default=False)],
    prompts: Annotated[
        list[str] | None, typer.Argument(help="Prompts; without any, standard input is one.", show_default=False)
    ] = None,
    input: Annotated[Path | None, typer.Option("--input", "-i", help="A file with a prompt a line.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to add, at most.")] = 128,
    beam_size: Annotated[int, typer.Option(help="1 is greedy.")] = 1,
    sample: Annotated[bool, typer.Option("--sample", help="Draw at random instead of searching.")] = False,
    temperature: Annotated[float, typer.Option(help="Of the draws.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw from the k likeliest tokens; 0: from all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the likeliest tokens that make up p.")] = 1.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: what is there becomes less likely.")] = 1.0,
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this text. Repeatable.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 1,
    batch_size: Annotated[int, typer.Option(help="Prompts gone on with side by side.")] = 16,
    template: Annotated[
        str | None,
        typer.Option(help=r"Put around each prompt, at {}; \n: a line end; control tokens count.", show_default=False),
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object a prompt.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    precision: Annotated[
        str, typer.Option(help="float32; on a CPU int16: faster, nearly as exact; int8: faster still.")
    ] = "float32",
) -> None:
    r"""Go on with texts. One prompt appears as it is written; several are done side by side, each on a line.

    \b
    Examples:
      clearhead generate runs/stories260K "Once upon a time"
      clearhead generate runs/gpt2 "The law of" --sample --top-p 0.9 --temperature 0.8 --seed 7
      clearhead generate runs/smollm2 "What is the capital of France?" \
          --template "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
      clearhead generate runs/gpt2 -i prompts.txt --json > out.jsonl
    """
    import dataclasses
    import json
    import sys

    from clearhead.decoding.loading import load_generator
    from clearhead.errors import ConfigError
    from clearhead.text.lines import one_line, read_lines

    if prompts and input:
        raise ConfigError(f"{len(prompts)} prompts are given and the file {input} too; give one or the other")
    generator = load_generator(run, device=device, precision=precision)
    texts = prompts or (list(read_lines(input)) if input else ["\n".join(read_lines(sys.stdin.buffer))])
    options = {
        "max_new_tokens": max_new_tokens, "beam_size": beam_size, "sample": sample, "temperature": temperature,
        "top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty, "stop": tuple(stop or ()),
        "seed": seed, "batch_size": batch_size,
    }  # fmt: skip
    around = None if template is None else template.replace(r"\n", "\n")
    if len(texts) == 1 and beam_size == 1 and not json_lines:
        for piece in generator.stream(texts[0], template=around, **options):
            print(piece, end="", flush=True)
        print()
        return
    for found in generator.continuations(texts, template=around, **options):
        print(json.dumps(dataclasses.asdict(found), ensure_ascii=False) if json_lines else one_line(found.text))
