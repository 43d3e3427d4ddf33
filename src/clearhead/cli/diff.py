"""`clearhead diff`: GPT, BERT and LLaMA as differences to the Transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from clearhead.models.differences import Difference


def diff(
    variant: Annotated[
        str, typer.Argument(help="transformer, gpt2, bert, llama, llama2, llama3 or marian.", show_default=False)
    ],
    other: Annotated[str | None, typer.Argument(help="Differences to this one; default: to the Transformer.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="A table in Markdown.")] = False,
) -> None:
    """Show what a variant changed: each option with the paper, the place in our code, and its cost in parameters.

    Both are taken at the size of the paper's base model, so only differences in kind show. The costs add up.

    \b
    Examples:
      clearhead diff gpt2
      clearhead diff llama gpt2                        # what LLaMA changed in GPT-2
      clearhead diff bert --markdown
    """
    from clearhead.models.differences import config_of, differences
    from clearhead.models.making import count_parameters

    before = other or "transformer"
    base, changed = config_of(before), config_of(variant)
    found = differences(base, changed)
    totals = count_parameters(base), count_parameters(changed)
    print((as_markdown if markdown else as_text)(before, variant, found, totals))


def as_markdown(before: str, after: str, found: list[Difference], totals: tuple[int, int]) -> str:
    """The table, and a line with the totals."""
    lines = [f"| option | {before} | {after} | parameters | paper | code |", "|---|---|---|---:|---|---|"]
    for one in found:
        cells = [f"`{one.field}`", readable(one.before), readable(one.after), cost(one.parameters), one.paper]
        lines.append(f"| {' | '.join([*cells, f'`{one.place}`'])} |")
    return "\n".join([*lines, "", f"{totals[0]:,} parameters become {totals[1]:,}."])


def as_text(before: str, after: str, found: list[Difference], totals: tuple[int, int]) -> str:
    """Two lines for each option, at most 80 columns wide: what it was and is, and who and where."""
    lines = [f"{before} → {after}", ""]
    for one in found:
        change = f"{readable(one.before)} → {readable(one.after)}"
        lines.append(f"{one.field:<16}{change:<48}{cost(one.parameters):>16}".rstrip())
        lines.append(" " * 16 + " · ".join(filter(None, (one.paper, one.place))))
    return "\n".join([*lines, "", f"{'parameters':<16}{totals[0]:,} → {totals[1]:,}"])


def readable(value: Any) -> str:
    """A value of an option."""
    if isinstance(value, dict):
        return f"{value['kind']}, factor {value['factor']:g}"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, str):
        return value
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def cost(parameters: int) -> str:
    """A number of parameters with its sign; nothing where there is no difference."""
    return f"{parameters:+,}" if parameters else ""
