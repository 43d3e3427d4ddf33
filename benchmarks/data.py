"""The sentences that are measured: Multi30k, English to German, or made-up ones of such lengths.

Multi30k is looked for in the folder that the environment variable CLEARHEAD_DATA names, else in ../shared/data.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = ROOT / "runs" / "bench"
"""What the measurements make and keep: made-up text and trained models."""
MADE_UP = "made-up sentences of Multi30k's lengths (Multi30k was not found)"
VOCABULARY = 10_000
MAX_LENGTH = 256


@dataclass(frozen=True)
class TextFiles:
    """Aligned training text and the sources of a test set."""

    source: Path
    target: Path
    test_source: Path
    origin: str
    """What it is, for the page."""

    def test_lines(self, count: int = 1000) -> list[str]:
        """So many of the 1,000 test sentences, evenly spread."""
        lines = self.test_source.read_text("utf-8").rstrip("\n").split("\n")[:1000]
        return lines[:: len(lines) // count][:count]


def text_files() -> TextFiles:
    """Multi30k if it is at hand, else text that is made up once."""
    shared = Path(os.environ.get("CLEARHEAD_DATA", ROOT.parent / "shared" / "data")) / "multi30k-en-de"
    if shared.is_dir():
        train, test = shared / "train.en", shared / "test_2016_flickr.en"
        return TextFiles(train, train.with_suffix(".de"), test, "Multi30k English-German")
    return make_up_text(WORK / "text")


def make_up_text(folder: Path) -> TextFiles:
    """29,000 pairs and 1,000 test lines of made-up words, some common and most rare, about 12 to a line."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghiklmnoprstuw", k=draw.randint(2, 9))) for _ in range(20_000)]
    frequencies = list(accumulate(1 / (rank + 1) for rank in range(len(words))))
    files = TextFiles(folder / "train.source", folder / "train.target", folder / "test.source", MADE_UP)
    for path, lines in ((files.source, 29_000), (files.target, 29_000), (files.test_source, 1_000)):
        lengths = [max(3, round(draw.lognormvariate(2.4, 0.35))) for _ in range(lines)]
        text = "".join(" ".join(draw.choices(words, cum_weights=frequencies, k=n)) + "\n" for n in lengths)
        path.write_text(text, encoding="utf-8")
    return files
