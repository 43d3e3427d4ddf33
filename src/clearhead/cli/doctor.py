"""`clearhead doctor`: which of the classic mistakes does a model make?"""

from __future__ import annotations

from typing import Annotated, Any

import typer


def doctor(
    target: Annotated[
        str,
        typer.Argument(
            help="A run folder, a Hugging Face model folder, or module:function, which builds a torch.nn.Module or "
            "a clearhead.doctor.Patient.",
            show_default=False,
        ),
    ],
    check: Annotated[list[str] | None, typer.Option(help="Only this check; can be given several times.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Without the checks that take training steps.")] = False,
    details: Annotated[bool, typer.Option("--details", help="What was measured, for every check.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of the report.")] = False,
    kind: Annotated[
        str | None, typer.Option(help="Of a module: encoder-decoder, decoder or encoder; by default by its arguments.")
    ] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Of a module: by default that of its first embedding.")] = None,
    pad: Annotated[int | None, typer.Option(help="Of a module: the padding's token id (0).")] = None,
    bos: Annotated[int | None, typer.Option(help="Of a module: the start token's id (1).")] = None,
    eos: Annotated[int | None, typer.Option(help="Of a module: the end token's id (2).")] = None,
) -> None:
    """Examine a Transformer for the classic mistakes: leaks of the future and of padding, masks, scaling, positions,
    labels, loss, first weights, schedule, cache, tokenizer, data. The exit code is 1 if there is a fault.

    A model is called as model(source, decoder_input) or model(ids) and has to return logits; anything else is said by a
    function that returns a clearhead.doctor.Patient.

    \b
    Examples:
      clearhead doctor runs/dates
      clearhead doctor mymodel:build --kind decoder --quick
      clearhead doctor mymodel:patient --check causality --check padding --details
      clearhead doctor clearhead.doctor.mistakes.masks:no_causal_mask     # see it find something
    """
    import json as json_library

    from rich.console import Console

    from clearhead.doctor.report import print_report
    from clearhead.doctor.targets import examine
    from clearhead.errors import ConfigError

    kinds = ("encoder-decoder", "decoder", "encoder")
    if kind is not None and kind not in kinds:
        raise ConfigError(f"--kind {kind}: choose one of {', '.join(kinds)}")
    given: dict[str, Any] = {"kind": kind, "vocabulary": vocabulary, "pad": pad, "bos": bos, "eos": eos}
    adapter = {name: value for name, value in given.items() if value is not None}
    console = Console(stderr=True)
    with console.status("examining …") if console.is_terminal else _nothing() as status:

        def say(finding: Any) -> None:
            if status is not None:
                status.update(f"{finding.check}: {finding.verdict} …")

        report = examine(target, checks=check or (), training=not quick, on_finding=say, **adapter)
    if json:
        print(json_library.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    else:
        print_report(report, Console(), details=details)
    if report.faults:
        raise typer.Exit(1)


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()
