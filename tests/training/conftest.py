"""What the tests of training share: tiny recipes, and a progress display that remembers."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead.recipe import Recipe, make_recipe
from clearhead.training.progress import UpdateLine
from clearhead.training.validation import Validation


class Recorder:
    """A progress display that keeps everything it is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.lines: list[UpdateLine] = []
        self.validations: list[tuple[int, Validation, bool]] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def update(self, line: UpdateLine, *, is_due: bool) -> None:
        self.lines.append(line)

    def validation(self, found: Validation, *, update: int, is_best: bool) -> None:
        self.validations.append((update, found, is_best))

    def close(self) -> None:
        pass


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program in a process of its own, which can import what the tests here import, and their modules."""

    def run(program: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        return subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def reversal_pairs(tmp_path: Path) -> Path:
    """120 short strings and their reversals."""
    return write_reversals(tmp_path / "pairs.tsv", 120)


def write_reversals(path: Path, count: int, *, longest: int = 7) -> Path:
    rng = random.Random(5)
    texts = ["".join(rng.choices("abcdefgh", k=rng.randint(1, longest))) for _ in range(count)]
    path.write_text("".join(f"{text}\t{text[::-1]}\n" for text in texts), encoding="utf-8")
    return path


@pytest.fixture
def tiny_recipe(tmp_path: Path, reversal_pairs: Path) -> Callable[..., Recipe]:
    """`tiny_recipe("run", updates=3)`: a model of 2,000 parameters with dropout, trained in milliseconds."""

    def make(name: str = "run", *, data: dict[str, Any] | None = None, model: dict[str, Any] | None = None, **training):
        shape = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "d_ff": 16, "n_heads": 2, "dropout": 0.2}
        options = {"batch_tokens": 64, "warmup": 5, "validate_every": 4, "device": "cpu", "threads": 1, "log_every": 1}
        options |= {"samples": 0}
        tables = {
            "run": {"dir": str(tmp_path / name), "seed": 3},
            "data": {"train": {"pairs": str(reversal_pairs)}, "max_length": 32, **(data or {})},
            "tokenizer": {"kind": "char"},
            "model": {**shape, **(model or {})},
            "training": {**options, **training},
            "decoding": {"max_length_ratio": 1.0, "max_length_extra": 2},
        }
        return make_recipe(tables)

    return make
