"""How good an aligner cross-attention is, where the right answer is known: the year and the day of a written date.

Of the demo's test dates it takes those whose source shows the year, and its day, in the same digits and only once: each
of these digits was copied from there. Compared are the mean over all heads of all layers (what `Inspection.alignment`
is), each layer's mean, the best and the worst single head, and occlusion: the source token whose exchange for the
unknown token lowers the written token's log-probability the most.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.data import ROOT
from benchmarks.harness import OURS, Row, rows_of, run_script
from clearhead.control_tokens import BOS, EOS, UNK
from clearhead.decoding.translator import Translator
from clearhead.demos.files import read_tsv
from clearhead.inspection.sentence import Inspection

RUN = ROOT / "runs" / "dates"
LINES = 600
DAY, MONTH = slice(8, 10), slice(5, 7)
"""Where they stand in an ISO date."""


def known_pairs(source: str, date: str) -> list[tuple[int, int]]:
    """Places in the date, and the places in the source that they can only come from."""
    pairs: list[tuple[int, int]] = []
    parts = [(0, date[:4])] + [(8, date[DAY])] * (date[DAY] != date[MONTH])
    for start, digits in parts:
        found = list(re.finditer(rf"(?<![0-9]){digits}(?![0-9])", source))
        if len(found) == 1:
            pairs += [(start + place, found[0].start() + place) for place in range(len(digits))]
    return pairs


def occlusion(translator: Translator, inspection: Inspection) -> Tensor:
    """How much each written token loses (t, s) when a source token is unknown."""
    source = translator.source_tokenizer.encode(inspection.source)
    target = translator.target_tokenizer.encode(inspection.translation)
    sources = torch.tensor([[*source, EOS]] * (len(source) + 1))
    sources[range(len(source)), range(len(source))] = UNK  # the last row stays whole
    with torch.inference_mode():
        logits = translator.model(sources, torch.tensor([[BOS, *target]] * len(sources)))
    scores = logits.log_softmax(-1).gather(2, torch.tensor([*target, EOS]).expand(len(sources), -1)[..., None])
    return (scores[-1:, :, 0] - scores[:-1, :, 0]).T


def dates_run() -> Path:
    """The demo's run folder; trained now, in two minutes, if there is none."""
    if not (RUN / "summary.json").exists():
        print("  training the dates demo")
        command = [sys.executable, "-m", "clearhead", "demo", "dates", "--run-dir", str(RUN)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return RUN


def measure(quick: bool) -> list[Row]:
    run = dates_run()
    translator = Translator.load(run, device="cpu")
    right: Counter[str] = Counter()
    digits = 0
    for source, date, *_ in read_tsv(run / "pairs" / "test.tsv")[: 20 if quick else LINES]:
        pairs = known_pairs(source, date)
        inspection = translator.inspect(source)
        if not pairs or inspection.translation != date or len(inspection.source_tokens) != len(source) + 1:
            continue
        cross = inspection.cross[..., :-1]
        scores = {OURS: cross.mean((0, 1)), "occlusion": occlusion(translator, inspection)}
        for layer, heads in enumerate(cross):
            scores[f"mean of layer {layer}"] = heads.mean(0)
            scores |= {f"cross.{layer}.{head}": weights for head, weights in enumerate(heads)}
        digits += len(pairs)
        for name, matrix in scores.items():
            best = matrix.argmax(-1)
            right[name] += sum(int(best[place]) == origin for place, origin in pairs)
    shares = {name: [100 * count / digits] for name, count in right.most_common()}
    heads = [name for name in shares if name.startswith("cross.")]
    kept = {name: share for name, share in shares.items() if name not in heads[1:-1]}
    return rows_of(f"alignment by attention, {digits:,} digits of dates", kept, unit="% right", best=max)


if __name__ == "__main__":
    run_script(measure)
