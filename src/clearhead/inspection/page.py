"""An `Inspection` as one HTML page that needs nothing but a browser.

The page's parts are the readable files in `page_files/`. Their texts are put into one document together with the data:
JSON, with all weights as one block of bytes (0 to 255 for 0 to 1), deflated, in base64.
"""

from __future__ import annotations

import base64
import html
import json
import math
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clearhead.inspection.heads import KINDS
from clearhead.inspection.statistics import MEASURES, HeadStatistics

if TYPE_CHECKING:
    from clearhead.inspection.sentence import Inspection

FILES = Path(__file__).with_name("page_files")
SCRIPTS = ("tools.js", "data.js", "lines.js", "map.js", "grid.js", "ranking.js", "steps.js", "main.js")
"""In the order in which the page runs them."""
FRAME_HEIGHT = 820
STEPS = 255
"""A weight is rounded to a multiple of 1 / 255: no eye sees less, and a byte holds it."""


def render_page(inspection: Inspection) -> str:
    """The whole document."""
    parts = {
        "title": html.escape(f"{inspection.source} → {inspection.translation}"),
        "style": read("page.css"),
        # "<" would let a token such as </script> end the element that holds the data.
        "data": json.dumps(page_data(inspection), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        "script": "\n".join(read(name) for name in SCRIPTS),
    }
    # In one go, so that no text of the user's that looks like a place to fill is filled.
    return re.sub(r"\{\{ (\w+) \}\}", lambda place: parts[place[1]], read("page.html"))


def render_frame(inspection: Inspection) -> str:
    """The page in a frame of its own, for notebooks: neither side's style or script reaches the other."""
    document = html.escape(render_page(inspection), quote=True)
    return (
        f'<iframe title="Attention of this translation" sandbox="allow-scripts" srcdoc="{document}" '
        f'style="width: 100%; height: {FRAME_HEIGHT}px; border: 0; border-radius: 8px"></iframe>'
    )


def page_data(inspection: Inspection) -> dict[str, Any]:
    """All that the page shows, as JSON types."""
    kinds: dict[str, dict[str, Any]] = {}
    blocks = []
    place = 0
    for kind in KINDS:
        maps = inspection.maps(kind)
        queries, keys = inspection.labels(kind)
        layers, heads = maps.shape[:2]
        kinds[kind] = {"layers": layers, "heads": heads, "queries": queries, "keys": keys, "place": place}
        blocks.append((maps * STEPS).round().clamp(0, STEPS).to(torch.uint8).numpy().tobytes())
        place += len(blocks[-1])
    return {
        "source": inspection.source,
        "translation": inspection.translation,
        "source_tokens": inspection.source_tokens,
        "target_tokens": inspection.target_tokens,
        "kinds": kinds,
        "weights": base64.b64encode(zlib.compress(b"".join(blocks), 9)).decode("ascii"),
        "steps": [
            {
                "token": step.token,
                "probability": step.probability,
                "alternatives": [[other.token, other.probability] for other in step.alternatives],
            }
            for step in inspection.steps
        ],
        "alignment": inspection.alignment,
        "notes": inspection.notes,
        "heads": [ranking_row(statistics) for statistics in inspection.statistics()],
    }


def ranking_row(statistics: HeadStatistics) -> dict[str, Any]:
    """A head's statistics; what is undefined is null, for JSON has no NaN."""
    kind, layer, head = statistics.head
    values = {name: getattr(statistics, name) for name in MEASURES}
    return {
        "kind": kind, "layer": layer, "head": head,
        **{name: None if math.isnan(value) else round(value, 6) for name, value in values.items()},
    }  # fmt: skip


def read(name: str) -> str:
    """The text of a part of the page."""
    return (FILES / name).read_text(encoding="utf-8")
