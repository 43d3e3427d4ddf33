"""`clearhead info`: what a run folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from clearhead.run_folder import RunFolder


def info(
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Say what a run folder holds: parameters by part, vocabularies, what the training came to.

    \b
    Examples:
      clearhead info runs/dates
      clearhead info runs/dates --json
    """
    import json as json_library

    from clearhead.run_folder import RunFolder

    found = describe_run(RunFolder(run).require())
    if json:
        print(json_library.dumps(found, indent=2, ensure_ascii=False))
    else:
        _print_table(found)


def describe_run(folder: RunFolder) -> dict[str, Any]:
    """All that `info` says, as JSON types. A training in progress has no `weights` key in `training` yet."""
    return {
        "run": str(folder),
        "model": folder.read_config().to_dict(),
        "vocabulary": _describe_vocabulary(folder),
        "parameters": count_parameters(folder.model) if folder.model.exists() else None,
        "training": _describe_import(folder) or folder.read_summary() or _latest_metrics(folder),
    }


def _describe_vocabulary(folder: RunFolder) -> dict[str, Any]:
    """Kind and size of the tokenizer of each side."""
    from clearhead.text.loading import load_tokenizers

    config = folder.read_config()
    if config.architecture != "encoder-decoder":
        only = {"kind": "pretrained", "tokens": config.target_vocab}
        return {"source": only, "target": only, "shared": True}
    source, target = load_tokenizers(folder)
    sides = {"source": source, "target": target}
    described = {side: {"kind": one.kind, "tokens": one.vocab_size} for side, one in sides.items()}
    return {**described, "shared": source is target}


def _describe_import(folder: RunFolder) -> dict[str, Any] | None:
    """Where an imported model comes from."""
    if not folder.imported.exists():
        return None
    imported = folder.read_imported()
    return {"reason": "imported", "from": imported.source, "family": imported.family}


def count_parameters(weights: Path) -> dict[str, int]:
    """Parameters by part, from the header of the weights alone; a matrix that is tied counts once, by its first name.

    Raises `RunError` for a file that is no safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    from clearhead.errors import RunError

    parts: dict[str, int] = {}
    try:
        with safe_open(str(weights), framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 (no mapping)
                count = 1
                for size in file.get_slice(name).get_shape():
                    count *= size
                part = name.split(".")[0]
                parts[part] = parts.get(part, 0) + count
    except (SafetensorError, OSError) as error:
        raise RunError(f"{weights}: not a readable safetensors file ({error})") from None
    return {**parts, "total": sum(parts.values())}


def _latest_metrics(folder: RunFolder) -> dict[str, Any]:
    """The last line of the log of each kind, for a run that is not finished."""
    latest: dict[str, Any] = {"reason": "not finished"}
    for record in folder.read_metrics():
        event = record.pop("event", None)
        if event == "training":
            latest |= record
        elif event == "validation":
            latest["last_validation"] = record
    return latest


def _print_table(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=found["run"], show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    vocabulary = found["vocabulary"]
    for side in ("source", "target"):
        kind = vocabulary[side]["kind"] + (", shared" if vocabulary["shared"] else "")
        table.add_row(f"{side} vocabulary", f"{vocabulary[side]['tokens']:,} tokens ({kind})")
    shape = found["model"]
    layers = f"{shape['encoder_layers']} + {shape['decoder_layers']} layers"
    table.add_row("model", f"{layers}, d_model {shape['d_model']}, d_ff {shape['d_ff']}, {shape['n_heads']} heads")
    table.add_section()
    for part, count in (found["parameters"] or {"parameters": "none saved yet"}).items():
        table.add_row(part, f"{count:,}" if isinstance(count, int) else count)
    table.add_section()
    for key, value in found["training"].items():
        if isinstance(value, dict):
            value = ", ".join(f"{name} {_readable(number)}" for name, number in value.items())
        table.add_row(key.replace("_", " "), _readable(value))
    Console().print(table)


def _readable(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
