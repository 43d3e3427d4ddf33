"""`clearhead translate`: text in, text out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from clearhead.decoding.translator import Hypothesis


def translate(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts; without any, the lines of standard input.", show_default=False)
    ] = None,
    input: Annotated[Path | None, typer.Option("--input", "-i", help="Read lines from this file (.gz too).")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
    beam_size: Annotated[int | None, typer.Option(help="1 is greedy; default: the recipe's.")] = None,
    n_best: Annotated[int, typer.Option(help="Outputs for each line, the best first.")] = 1,
    length_penalty: Annotated[float | None, typer.Option(help="Alpha; 0 favours short outputs.")] = None,
    max_length_ratio: Annotated[
        float | None, typer.Option(help="Output tokens for each source token, at most …")
    ] = None,
    max_length_extra: Annotated[int | None, typer.Option(help="… and this many more.")] = None,
    prefix: Annotated[str | None, typer.Option(help="What every output begins with.")] = None,
    prefixes: Annotated[Path | None, typer.Option(help="A file with one such beginning a line.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw at random instead of searching.")] = False,
    temperature: Annotated[float, typer.Option(help="Of the draws.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw from the k likeliest tokens; 0: from all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the likeliest tokens that make up p.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 1,
    batch_size: Annotated[int | None, typer.Option(help="Hypotheses decoded side by side.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Put score and log-probability before each output.")] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    precision: Annotated[
        str, typer.Option(help="float32; on a CPU int16: faster, nearly as exact; int8: faster still.")
    ] = "float32",
) -> None:
    """Translate texts, a file, or standard input, line for line.

    Output line i belongs to input line i; a blank line stays blank. With --n-best N each line gives N lines.

    \b
    Examples:
      clearhead translate runs/dates "11 novembre 1918" "2024年2月29日"
      clearhead translate runs/multi30k-en-de < test.en > test.out.de
      clearhead translate runs/dates -i dates.txt.gz -o iso.txt --beam-size 1
      clearhead translate runs/pinyin "银行" --n-best 3 --scores
      clearhead translate runs/multi30k-en-de -i test.en -o test.out.de --precision int16
    """
    from clearhead.decoding.translator import load
    from clearhead.errors import ConfigError
    from clearhead.text.lines import read_lines

    if texts and input:
        raise ConfigError(f"{len(texts)} texts are given and the file {input} too; give one or the other")
    if prefix is not None and prefixes is not None:
        raise ConfigError("--prefix and --prefixes are both given; keep one")
    wanted = {
        "beam_size": beam_size, "n_best": n_best, "length_penalty": length_penalty,
        "max_length_ratio": max_length_ratio, "max_length_extra": max_length_extra, "sample": sample,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed, "batch_size": batch_size,
    }  # fmt: skip
    changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    translator = load(run, device=device, precision=precision)
    lines, must_wait = _lines(texts, input)
    begun = prefix if prefixes is None else read_lines(prefixes)
    results = translator.translate_lines(lines, prefixes=begun, must_wait=must_wait, **changes)
    _write(_formatted(results, n_best=n_best, scores=scores, json_lines=json_lines), output)


def _lines(texts: list[str] | None, input: Path | None) -> tuple[Iterable[str], Callable[[], bool]]:
    """The texts to translate, and whether the next one has still to arrive."""
    import io
    import sys

    from clearhead.errors import ConfigError
    from clearhead.text.arrivals import ArrivingLines
    from clearhead.text.lines import read_lines

    if texts:
        return texts, lambda: False
    if input and str(input) != "-":
        return read_lines(input), lambda: False
    if sys.stdin is None:
        raise ConfigError("no texts are given, and standard input is closed")
    try:
        arriving = ArrivingLines(sys.stdin.fileno())
    except io.UnsupportedOperation:  # standard input is no file of the system's, but somebody's object
        return read_lines(sys.stdin.buffer), lambda: False
    return read_lines(arriving), arriving.must_wait


def _formatted(results: Iterable[list[Hypothesis]], *, n_best: int, scores: bool, json_lines: bool) -> Iterator[str]:
    """Lines to write, `n_best` for each input line; what was cut is reported on standard error."""
    import dataclasses
    import json
    import sys

    from clearhead.text.lines import one_line

    for number, hypotheses in enumerate(results, start=1):
        best = hypotheses[0]
        if best.hit_length_limit:
            print(f"line {number}: the output was cut at its length limit of {len(best.ids)} tokens", file=sys.stderr)
        if best.source_cut:
            print(f"line {number}: the source is too long; its end was not read", file=sys.stderr)
        for hypothesis in hypotheses:
            text = one_line(hypothesis.text)
            if json_lines:
                yield json.dumps({"line": number, **dataclasses.asdict(hypothesis)}, ensure_ascii=False)
            elif scores:
                yield f"{hypothesis.score:.4f}\t{hypothesis.log_probability:.4f}\t{text}"
            else:
                yield text
        if not json_lines:  # where there are fewer outputs than asked for, the lines after still keep their places
            yield from ["-inf\t-inf\t" if scores else ""] * (n_best - len(hypotheses))


def _write(lines: Iterable[str], output: Path | None) -> None:
    """To standard output as they come, or to a file that appears when it is whole."""
    from clearhead.run_folder import write_atomically

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)

    if output is None:
        for line in lines:
            print(line, flush=True)
    elif output.exists() and not output.is_file():
        write(output)  # a pipe or /dev/null must not be replaced by a file; a folder is refused before any work
    else:
        write_atomically(output, write)
