"""How much memory it takes to load SmolLM2-135M, beside the size of its weights in float32.

Each figure is of a process of its own: the largest resident set, less what was resident when all was imported. A mapped
file counts as far as it has been read. `and a token` generates one, so that every weight has been read once.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import OURS, THREADS, Row, cost_rows, run_script
from benchmarks.published import exported, imported, smollm2_file, transformers

PEER = "transformers"
PROMPT = "The sea is"


def resident_bytes() -> int:
    """The largest resident set of this process so far."""
    with contextlib.suppress(FileNotFoundError):  # Linux: what `getrusage` says begins with the parent's
        status = Path("/proc/self/status").read_text("utf-8")
        return 1024 * int(re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def report_growth(work: str, path: str) -> None:
    """Do the work, and print by how many bytes the largest resident set grew."""
    import torch

    torch.set_num_threads(THREADS)
    match work:
        case "import":
            import gguf  # noqa: F401

            from clearhead.interchange.importing import import_model

            before = resident_bytes()
            with tempfile.TemporaryDirectory() as folder:
                import_model(Path(path), Path(folder) / "run")
        case "load":
            from clearhead.decoding.loading import load_generator

            before = resident_bytes()
            load_generator(path, device="cpu").generate(PROMPT, max_new_tokens=1)
        case "load theirs" | "load their GGUF":
            library = transformers()
            from transformers import LlamaForCausalLM  # noqa: F401

            before = resident_bytes()
            where = (
                (path, {}) if work == "load theirs" else (os.path.dirname(path), {"gguf_file": os.path.basename(path)})
            )
            model = library.AutoModelForCausalLM.from_pretrained(where[0], dtype=torch.float32, **where[1])
            with torch.inference_mode():
                model(torch.tensor([[1, 2, 3]]), logits_to_keep=1)
    print(resident_bytes() - before)


def growth(work: str, path: Path) -> int:
    """What `report_growth` says in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.loading", "--growth", work, str(path)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def measure(quick: bool) -> list[Row]:
    file = smollm2_file()
    if file is None:
        return []
    run = imported(file, "smollm2")
    weights = run.model.stat().st_size
    print(f"  weights: {weights / 2**20:.0f} MiB")
    rounds = range(1 if quick else 3)
    loading = {OURS: ("load", run.path), PEER: ("load theirs", exported(run))}
    importing = {OURS: ("import", file), PEER: ("load their GGUF", file)}
    rows = []
    for title, systems in (("loading SmolLM2-135M, and a token", loading), ("reading its GGUF file", importing)):
        costs = {name: [growth(*job) / weights for _ in rounds] for name, job in systems.items()}
        rows += cost_rows(f"memory of {title}", costs, unit="of its weights")
    return rows


if __name__ == "__main__":
    if "--growth" in sys.argv:
        report_growth(sys.argv[-2], sys.argv[-1])
    else:
        run_script(measure)
