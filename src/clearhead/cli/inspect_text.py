"""`clearhead inspect` of a model with one side: what a text's tokens look at, and how likely each is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def has_one_side(run: Path) -> bool:
    """Whether a run's model is a GPT, a LLaMA or a BERT."""
    from clearhead.run_folder import RunFolder

    return RunFolder(run).require().read_config().architecture != "encoder-decoder"


def inspect_text(
    run: Path, text: str | None, *,
    layer: int | None, head: int | None, png: Path | None, grid: bool, device: str, console: Console,
) -> None:  # fmt: skip
    """Print a map of one head, by default the sharpest, and a line for each token; draw that map or all to a file."""
    from rich.markup import escape
    from rich.table import Table

    from clearhead.decoding.loading import load
    from clearhead.decoding.translator import Translator
    from clearhead.errors import ConfigError
    from clearhead.inspection.heatmap import render_heatmap
    from clearhead.inspection.text import look_inside_text

    if text is None:
        raise ConfigError(f"{run}: of a model with one side a text can be looked into: give one")
    if layer is None and head is not None:
        raise ConfigError(f"--head {head} of which layer? Give --layer too")
    if grid and png is None:
        raise ConfigError("--grid says what --png FILE draws; give that too")
    loaded = load(run, device=device)
    assert not isinstance(loaded, Translator)
    tokenizer = loaded.tokenizer
    is_causal = loaded.model.config.architecture == "decoder"
    ids = tokenizer.encode(text) if is_causal else tokenizer.encode_masked(text)
    names = tokenizer.tokens(range(loaded.model.config.target_vocab))
    found = look_inside_text(loaded.model, ids, tokenizer.tokens(ids), names)
    if layer is None:
        layer, head = found.sharpest()
    which = f"mean of the heads of layer {layer}" if head is None else f"layer {layer}, head {head}"
    console.print(f"[bold]self-attention[/], {which}: a line is a token that looks, a column one looked at")
    width = console.width if console.is_terminal else None
    weights = found.weights(layer, head)
    console.print(render_heatmap(weights, found.tokens, found.tokens, width=width), markup=False, soft_wrap=True)

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("token", "probability", "likeliest"):
        table.add_column(heading, justify="right" if heading == "probability" else "left")
    for token, chance, (other, other_chance) in zip(found.tokens, found.probabilities, found.likeliest, strict=True):
        said = (f"{chance:.4f}", f"{escape(other)} [dim]{other_chance:.4f}[/]") if other_chance else ("", "")
        table.add_row(escape(token), *said)
    console.print()
    console.print(table, soft_wrap=not console.is_terminal)
    if png is not None:
        from clearhead.inspection.plot import save_figure

        save_figure(found.plot() if grid else found.plot(layer, head), png)
        console.print(f"\n{png}: written", markup=False, soft_wrap=True)
