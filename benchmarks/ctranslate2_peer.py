"""CTranslate2 with our weights, in a process and an environment of its own (`make bench` makes the environment).

The process waits while it isn't asked, so what is compared takes turns: never do both compute at once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np
from torch import Tensor

from benchmarks.data import ROOT
from benchmarks.harness import Timed, seconds_of
from clearhead.control_tokens import BOS, EOS, UNK
from clearhead.models.transformer import Transformer

ENVIRONMENT = ROOT / ".venv-bench-ctranslate2"
WORKER = ROOT / "benchmarks" / "ctranslate2_worker.py"
REQUIREMENTS = ROOT / "requirements" / "bench-ctranslate2.txt"
PEER = "CTranslate2"
BACKENDS = {"oneDNN": "0", "MKL": "1"}
"""What computes its matrix products, and how CT2_USE_MKL says it. By itself it takes MKL on Intel's processors only."""
INTER_AND_INTRA_THREADS = (2, 1)
"""Two batches at once, on one thread each: CTranslate2's best on two cores, by a factor of 2 to 3."""
BATCH_SIZES = (32, 64, 128)
TRIAL = 256
"""Sentences to choose the batch size with: two batches of the largest. A quarter of them to choose the backend."""

Sources = list[list[int]]


def installed_version() -> str:
    """As pinned."""
    return re.findall(r"^ctranslate2==(\S+)", REQUIREMENTS.read_text("utf-8"), re.MULTILINE)[0]


class CTranslate2:
    """Our model in CTranslate2, a process for each of its backends. To be used in a `with` block."""

    def __init__(self, model: Transformer) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._workers = {name: Worker(CT2_USE_MKL=value) for name, value in BACKENDS.items()}
        self._numbers: dict[tuple[str, str, tuple[int, int]], int] = {}
        self._build(model)

    def __enter__(self) -> CTranslate2:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.close()
        self._folder.cleanup()

    def translate(
        self,
        sources: Sources,
        *,
        beam_size: int,
        batch_size: int,
        longest: int,
        length_penalty: float = 0.0,
        compute_type: str = "float32",
        threads: tuple[int, int] = INTER_AND_INTRA_THREADS,
        backend: str = "oneDNN",
    ) -> Timed:
        """Outputs, token ids without the end token. `sources` end with it; `longest` limits the outputs."""
        answer = self._workers[backend].ask(
            "translate",
            translator=self._open(backend, compute_type, threads),
            sources=sources,
            beam_size=beam_size,
            batch_size=batch_size,
            longest=longest,
            length_penalty=length_penalty,
        )
        return Timed(answer["seconds"], answer["outputs"])

    def best(self, sources: Sources, **how: Any) -> dict[str, Any]:
        """The backend and the batch size, of those tried, that the first sentences are translated fastest with."""

        def trial(settings: dict[str, Any], trials: int) -> float:
            return seconds_of(partial(self.translate, sources[:trials], **settings, **how))

        backends: list[dict[str, Any]] = [{"backend": name, "batch_size": BATCH_SIZES[0]} for name in BACKENDS]
        for settings in backends:
            trial(settings, 1)  # the first call allocates
        backend = min(backends, key=lambda settings: trial(settings, TRIAL // 4))["backend"]
        sizes = [{"backend": backend, "batch_size": size} for size in BATCH_SIZES]
        return min(sizes, key=lambda settings: trial(settings, TRIAL))

    def _build(self, model: Transformer) -> None:
        """Hand over the weights. A worker has no torch, so they come as numpy's arrays."""
        config, folder = model.config, Path(self._folder.name)
        arrays: dict[str, Any] = {
            name: weight.detach().contiguous().numpy() for name, weight in model.named_parameters()
        }
        arrays["target_embedding.weight"] = model.target_embedding.weight.detach().numpy()
        arrays["positions"] = cast(Tensor, model.positions.table).numpy()
        np.savez(folder / "weights.npz", **arrays)
        next(iter(self._workers.values())).ask(
            "build",
            arrays=str(folder / "weights.npz"),
            folder=str(folder / "model"),
            heads=config.n_heads,
            layers=[config.encoder_layers, config.decoder_layers],
            epsilon=config.norm_epsilon,
            control={"bos": BOS, "eos": EOS, "unk": UNK},
        )

    def _open(self, backend: str, compute_type: str, threads: tuple[int, int]) -> int:
        """The number of the translator of this kind; loaded when it is first asked for."""
        key = (backend, compute_type, threads)
        if key not in self._numbers:
            inter, intra = threads
            self._numbers[key] = self._workers[backend].ask(
                "open",
                folder=str(Path(self._folder.name) / "model"),
                compute_type=compute_type,
                inter_threads=inter,
                intra_threads=intra,
            )
        return self._numbers[key]


class Worker:
    """A process that answers one request after the other (benchmarks/ctranslate2_worker.py)."""

    def __init__(self, **variables: str) -> None:
        python = ENVIRONMENT / "bin" / "python"
        if not python.exists():
            raise RuntimeError(f"{python} is missing; `make {ENVIRONMENT.name}/.bench-ctranslate2` installs it")
        # How many threads it may have is said on opening; a limit that was meant for this process must not hamper it.
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
        self._process = subprocess.Popen(
            [str(python), "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment, **variables},
        )

    def ask(self, action: str, **arguments: Any) -> Any:
        """Send a request and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": action, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the CTranslate2 process ended on {action!r}; what it said stands above")
        return json.loads(answer)

    def close(self) -> None:
        """Close its input, which ends it."""
        self._process.communicate()
