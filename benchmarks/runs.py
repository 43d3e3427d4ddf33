"""The model to decode with: trained a few minutes by `clearhead train`, and kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.data import ROOT, WORK, text_files

MINUTES = 8


def trained_run(*, quick: bool) -> Path:
    """The run folder of a tiny model; trained now if there is none."""
    run = WORK / ("tiny-quick" if quick else "tiny")
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
