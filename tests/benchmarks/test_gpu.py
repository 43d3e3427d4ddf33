"""benchmarks/gpu.sh, tried on the processor: no GPU is needed to see that it runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="compiling needs a C++ compiler")
def test_it_runs_on_the_processor_too() -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    command = [ROOT / "benchmarks" / "gpu.sh", "--quick", "--device", "cpu"]
    subprocess.run(command, check=True, env=environment)
    rows = json.loads((ROOT / "runs" / "bench" / "gpu.json").read_text("utf-8"))
    found = {(row["work"], row["system"]) for row in rows}
    for work in ("greedy, tiny", "beam 5, tiny", "one sentence, tiny", "training tiny, bfloat16, compiled"):
        assert (work, "clearhead") in found
    assert all(row["median"] > 0 for row in rows)
