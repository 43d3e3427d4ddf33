"""One GPU in under eight minutes: model FLOPs utilisation in training, decoding's throughput and latency.

Training: the shapes `base` and `big` in bfloat16, as it is and compiled, on one full batch of 32 tokens a sentence;
`torch.nn.Transformer` and transformers' Marian train the same. Decoding: greedily and with a beam of 5, in float32, the
weights of `base` beside transformers' `generate`. What the eight minutes don't suffice for is left out, and said.

benchmarks/gpu.sh runs it. `--quick --device cpu` tries every line of it on a processor, in the shape `tiny`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from benchmarks.data import ROOT, VOCABULARY, WORK, text_files
from benchmarks.decoding import PEER as MARIAN
from benchmarks.decoding import generate, peers_length_penalty, require_equal, translate
from benchmarks.growth import random_batch
from benchmarks.harness import OURS, PEAK, Row, cost_rows, rows_of, take_turns, throughput_rows
from benchmarks.latency import latencies
from benchmarks.peers import copy_to_marian, marian
from benchmarks.report import table
from benchmarks.runs import bench_translator
from benchmarks.training import SYSTEMS, Setting, shape
from clearhead.control_tokens import EOS
from clearhead.evaluation.speed import needed_flops, product_rates

DATA_SHEET = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
"""Dense bfloat16 operations a second, by a part of the device's name: what utilisation is a share of."""
BATCH_TOKENS = {"tiny": 512, "base": 32_768, "big": 16_384}
LENGTH = 32
STEPS = 10
"""Updates in a round."""
SECONDS = 7 * 60
"""No system is begun after so many: compiling takes up to a minute each."""

HEAD = """\
# On a GPU

Written by `benchmarks/gpu.sh`. Device: {device}, torch {torch}. **Of the peak** is model FLOPs utilisation: what the
work needs, without padding, over {peak:,.0f} TFLOP/s, {origin}.
"""


class Clock:
    """How much of the eight minutes is left."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.start = time.monotonic()
        self.left_out: list[str] = []

    def allows(self, work: str) -> bool:
        """Whether there is time to begin this; notes it down if not."""
        if time.monotonic() - self.start < self.seconds:
            return True
        self.left_out.append(work)
        return False


def training_rows(preset: str, setting: Setting, peak: float, clock: Clock, *, quick: bool) -> list[Row]:
    """Target tokens a second, all systems."""
    work = f"training {preset}, {setting.precision}{', compiled' if setting.compiled else ''}"
    config = shape(preset, VOCABULARY)
    sentences = BATCH_TOKENS[preset] // LENGTH
    batch = random_batch(sentences, LENGTH).to(setting.device)
    steps = 1 if quick else STEPS

    def updates(step: Callable[..., None]) -> None:
        for _ in range(steps):
            step(batch)
        wait(setting.device)

    systems = {}
    for name, make_step in SYSTEMS.items():
        if clock.allows(f"{work}: {name}"):
            systems[name] = partial(updates, make_step(config, setting))
            systems[name]()  # compiles, and chooses kernels
    if not systems:
        return []
    seconds = take_turns(systems, rounds=1 if quick else 5)
    lengths = [LENGTH] * sentences
    flops = steps * needed_flops(config, lengths, lengths, training=True)
    amount = steps * batch.target_tokens
    return throughput_rows(work, seconds, amount=amount, unit="target tokens/s", share_of_peak=flops / peak)


def wait(device: torch.device) -> None:
    """Until the GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def decoding_rows(preset: str, device: torch.device, *, quick: bool) -> Iterator[Row]:
    """Sentences a second, and milliseconds for one."""
    translator = bench_translator(preset, quick=True, device=str(device))
    theirs = marian(translator.model.config).eval().to(device)
    copy_to_marian(translator.model, theirs)
    lines = text_files().test_lines(16 if quick else 1000)
    sources = [[*ids, EOS] for ids in translator.source_tokenizer.encode_batch(lines)]
    for beam_size, name, batch_size in ((1, "greedy", 256), (5, "beam 5", 64)):
        ours = partial(translate, translator, lines, beam_size=beam_size)
        outputs = ours()
        alpha = peers_length_penalty(translator.options.length_penalty, [len(ids) + 1 for ids in outputs])
        peer = partial(generate, theirs, sources, beam_size=beam_size, batch_size=batch_size, length_penalty=alpha)
        require_equal(outputs, peer(), MARIAN, beam_size=beam_size)
        seconds = take_turns({OURS: ours, f"{MARIAN}, batch {batch_size}": peer}, rounds=1 if quick else 3)
        yield from throughput_rows(f"{name}, {preset}", seconds, amount=len(lines), unit="sentences/s")
    alone = {
        OURS: lambda i: translate(translator, [lines[i]], beam_size=1),
        MARIAN: lambda i: generate(theirs, [sources[i]], beam_size=1),
    }
    medians = latencies(alone, 2 if quick else 20, 1 if quick else 3)
    yield from cost_rows(f"one sentence, {preset}", medians, unit="ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny only, once; the files go to runs/bench/")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device = torch.device(options.device)
    clock = Clock(math.inf if options.quick else SECONDS)
    torch.manual_seed(1)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    rates = product_rates(5, device=device, dtype=torch.bfloat16, side=256 if options.quick else None)
    peak, origin = max(rates), "the best of a few rounds of large matrix products"
    for part, flops in DATA_SHEET.items():
        if part in name:
            peak, origin = flops, "by the device's data sheet"
    measured = {PEAK: [rate / 1e12 for rate in rates]}
    rows = rows_of("matrix products, bfloat16", measured, unit="TFLOP/s", best=max, share_of_peak=1e12 / peak)
    presets = ("tiny",) if options.quick else ("base", "big")
    rows += decoding_rows(presets[0], device, quick=options.quick)
    for preset in presets:
        for compiled in (False, True):
            setting = Setting(device, "bfloat16", compiled)
            rows += training_rows(preset, setting, peak, clock, quick=options.quick)
    write(
        rows, HEAD.format(device=name, torch=torch.__version__, peak=peak / 1e12, origin=origin), clock, options.quick
    )


def write(rows: list[Row], head: str, clock: Clock, quick: bool) -> None:
    """The page and the rows."""
    folder: Path = WORK if quick else ROOT / "docs"
    missing = "".join(f"- Left out for want of time: {work}\n" for work in clock.left_out)
    (folder / "gpu.md").write_text(f"{head}\n{missing}\n{table(rows)}", "utf-8")
    (folder / "gpu.json").write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", "utf-8")
    print(f"wrote {folder / 'gpu.md'} after {time.monotonic() - clock.start:.0f} s")


if __name__ == "__main__":
    main()
