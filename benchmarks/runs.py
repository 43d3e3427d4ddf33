"""The models to decode with: a tiny one, trained for minutes by `clearhead train` and kept, and a base made of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.data import ROOT, WORK, text_files
from benchmarks.widen import widened
from clearhead.decoding.layout import lay_out_for_few_rows
from clearhead.decoding.translator import Translator

MINUTES = 8


def trained_run(*, quick: bool) -> Path:
    """The run folder of a tiny model; trained now if there is none. A quick try takes the better one if it is there."""
    whole = WORK / "tiny"
    if (whole / "summary.json").exists():
        return whole
    run = WORK / "tiny-quick" if quick else whole
    if (run / "summary.json").exists():
        return run
    files = text_files()
    minutes = 0.5 if quick else MINUTES
    print(f"  training a tiny model for {minutes} minutes, to have weights to decode with")
    settings = {
        "run.dir": f'"{run}"',
        "data.train": f'[{{source = "{files.source}", target = "{files.target}"}}]',
        "model.preset": '"tiny"',
        "training.max_minutes": minutes,
    }
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "clearhead", "train", str(ROOT / "benchmarks" / "model.toml"), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return run


def bench_translator(preset: str, *, quick: bool, device: str = "cpu", precision: str = "float32") -> Translator:
    """The trained tiny model; as `base`, the same outputs computed in that shape (benchmarks/widen.py)."""
    translator = Translator.load(trained_run(quick=quick), device="cpu", precision=precision)
    if preset == "base":
        translator.model = widened(translator.model)
        lay_out_for_few_rows(translator.model, precision)  # as loading does
    translator.model.to(device)
    return translator
