"""A training's log as curves: losses, metric, learning rate, and what `[diagnostics]` measured inside the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clearhead.errors import RunError
from clearhead.run_folder import RunFolder

Curve = list[tuple[int, float]]
"""Update and value, by rising updates."""
WIDE = 30.0
"""Values that differ so many times are shown on a logarithmic scale."""
NO_METRIC = {"event", "update", "loss", "perplexity", "seconds", "is_best"}
"""What a validation writes beside the value of its metric."""


@dataclass(frozen=True)
class Panel:
    """Curves that share an axis."""

    title: str
    curves: dict[str, Curve]
    log: bool = field(kw_only=True, default=False)
    """Whether the axis of the values is logarithmic."""


def read_log(folder: RunFolder) -> list[dict[str, Any]]:
    """The valid records of a run's `metrics.jsonl`, whether or not it is still being written.

    Raises `RunError` if no training was begun here, or it has written nothing yet.
    """
    folder.require()
    if folder.imported.exists():
        raise RunError(f"{folder}: an imported model; how it was trained was not recorded")
    records = standing_records(folder.read_metrics())
    if not any(record["event"] in ("training", "validation") for record in records):
        raise RunError(
            f"{folder.metrics}: nothing is recorded yet; a training writes a line every training.log_every updates"
        )
    return records


def standing_records(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records without those that were taken back, in order.

    A training that goes on from an earlier update writes updates once more: then what was recorded of them, and of all
    behind them, holds no longer. Lines that are no records of an update are left out.
    """
    kept: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if type(record.get("update")) is not int or not isinstance(record.get("event"), str):
            continue
        same = kept.setdefault(record["event"], [])
        while same and same[-1]["update"] >= record["update"]:
            same.pop()
        same.append(record)
    return sorted((record for same in kept.values() for record in same), key=lambda record: record["update"])


def describe_progress(records: Sequence[Mapping[str, Any]], folder: RunFolder) -> str:
    """How far a training got, and whether it came to its end."""
    seconds = curve([record for record in records if record["event"] == "training"], "seconds")
    took = f" in {seconds[-1][1] / 60:,.1f} minutes" if seconds else ""
    return f"{records[-1]['update']:,} updates{took}, {'finished' if folder.summary.exists() else 'not finished'}"


def training_panels(records: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Everything that there is to draw of the records that `read_log` gives. A panel without a curve is left out."""
    training, validation, inside = (
        [record for record in records if record["event"] == event]
        for event in ("training", "validation", "diagnostics")
    )
    plain, smoothed = curve(training, "plain"), curve(training, "loss")
    if all(math.isclose(a[1], b[1], rel_tol=1e-3) for a, b in zip(plain, smoothed, strict=False)):
        smoothed = []
    metrics = list(dict.fromkeys(key for record in validation for key in record if key not in NO_METRIC))
    losses = {"training": plain, "smoothed": smoothed, "validation": curve(validation, "loss")}
    panels = [
        panel("loss, nats per target token", losses),
        *(panel(f"validation: {metric}", {metric: curve(validation, metric)}, may_be_log=False) for metric in metrics),
        panel("learning rate", {"rate": curve(training, "learning_rate")}, may_be_log=False),
        panel("gradient norm, before clipping", {"all weights": curve(training, "gradient_norm")}),
        panel("gradient norm by layer", by_path(inside, "gradient_norm")),
        panel("activations by layer", by_path(inside, "activation")),
        panel("update over weight by layer", by_path(inside, "update_ratio")),
        panel("attention entropy (1: all keys alike)", by_path(inside, "entropy"), may_be_log=False),
        panel(heads_title(inside), heads_by_fault(inside), may_be_log=False),
    ]
    return [one for one in panels if one.curves]


def panel(title: str, curves: Mapping[str, Curve], *, may_be_log: bool = True) -> Panel:
    """Those of the curves that have points."""
    filled = {name: points for name, points in curves.items() if points}
    values = [value for points in filled.values() for _, value in points]
    is_wide = bool(values) and min(values) > 0 and max(values) > WIDE * min(values)
    return Panel(title, filled, log=may_be_log and is_wide)


def curve(records: Iterable[Mapping[str, Any]], key: str) -> Curve:
    """A key's values; what is missing or no finite number leaves a gap."""
    points = ((record["update"], record.get(key)) for record in records)
    return [
        (update, float(value))
        for update, value in points
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    ]


def by_path(records: Sequence[Mapping[str, Any]], group: str) -> dict[str, Curve]:
    """The curves of a group of keys such as `activation/encoder.0`, under their short names, stack by stack."""
    keys = dict.fromkeys(key for record in records for key in record if key.startswith(f"{group}/"))
    curves = {short_name(key.removeprefix(f"{group}/")): curve(records, key) for key in keys}
    order = {"encoder": 0, "decoder": 1, "cross": 2}
    return dict(sorted(curves.items(), key=lambda named: order.get(named[0].split(".")[0], len(order))))


def short_name(path: str) -> str:
    """`decoder.layers.1.cross_attention` is `cross.1`, as heads are named; layers have their names already."""
    parts = path.split(".")
    if len(parts) < 3 or not parts[-1].endswith("_attention"):
        return path
    return f"{'cross' if parts[-1] == 'cross_attention' else parts[0]}.{parts[-2]}"


def heads_by_fault(records: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """How many heads look at one key only, and how many at all keys alike."""
    return {"saturated": curve(records, "saturated_heads"), "uniform": curve(records, "uniform_heads")}


def heads_title(records: Sequence[Mapping[str, Any]]) -> str:
    """With the number of all heads."""
    count = max((record["heads"] for record in records if isinstance(record.get("heads"), int)), default=0)
    return f"saturated, uniform heads of {count:,}"
