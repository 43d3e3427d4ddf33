"""How good an aligner cross-attention is, where the right answer is known: the year and the day of a written date.

`python -m benchmarks.alignment runs/dates` (after `make demo`) takes the test dates whose source shows the year,
and its day, in the same digits and only once: each of these digits was copied from there. Compared are the mean over
all heads of all layers (what `Inspection.alignment` is), each layer's mean, the best single head, and occlusion: the
source token whose exchange for the unknown token lowers the written token's log-probability the most.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from clearhead.control_tokens import BOS, EOS, UNK
from clearhead.decoding.translator import Translator
from clearhead.demos.files import read_tsv
from clearhead.inspection.sentence import Inspection

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--lines", type=int, default=600)
    options = parser.parse_args()
    translator = Translator.load(options.run, device="cpu")
    right: Counter[str] = Counter()
    digits = 0
    for source, date, *_ in read_tsv(options.run / "pairs" / "test.tsv")[: options.lines]:
        pairs = known_pairs(source, date)
        inspection = translator.inspect(source)
        if not pairs or inspection.translation != date or len(inspection.source_tokens) != len(source) + 1:
            continue
        cross = inspection.cross[..., :-1]
        scores = {"mean of all heads": cross.mean((0, 1)), "occlusion": occlusion(translator, inspection)}
        for layer, heads in enumerate(cross):
            scores[f"layer {layer}"] = heads.mean(0)
            scores |= {f"cross.{layer}.{head}": weights for head, weights in enumerate(heads)}
        digits += len(pairs)
        for name, matrix in scores.items():
            best = matrix.argmax(-1)
            right[name] += sum(int(best[place]) == origin for place, origin in pairs)
    for name, count in right.most_common():
        print(f"{name:20} {100 * count / digits:5.1f} % of {digits:,} digits")


if __name__ == "__main__":
    main()
