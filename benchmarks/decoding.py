"""How many sentences a second are translated: Clearhead beside transformers' `generate`, with the same weights.

The weights are those of a short training of the tiny shape (benchmarks/runs.py), so that outputs have the lengths of
real ones; the base model computes the same (benchmarks/widen.py). Both decode test sentences sorted by length,
`generate` with the batch size of those tried that suits it best, Clearhead with its defaults. First the greedy outputs
are compared token by token.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from benchmarks.data import text_files
from benchmarks.harness import OURS, PRESETS, THREADS, Row, run_script, seconds_of, take_turns, throughput_rows
from benchmarks.machine import needed_flops, peak_flops
from benchmarks.peers import copy_to_marian, marian
from benchmarks.runs import trained_run
from benchmarks.widen import widened
from clearhead.control_tokens import BOS, EOS, PAD, UNK
from clearhead.decoding.layout import lay_out_for_few_rows
from clearhead.decoding.translator import Translator

PEER = "transformers (Marian)"
LONGEST = 60
"""Both cut an output there."""
BATCH_SIZES = {1: (32, 64, 128), 5: (16, 32, 64)}
"""Tried for `generate`, by beam size, on the first `TRIAL` sentences."""
TRIAL = 100
SENTENCES = 1000
ROUNDS = {("tiny", 1): 5, ("tiny", 5): 5, ("base", 1): 5, ("base", 5): 3}
"""By shape and beam size; a round of base with a beam takes five minutes."""
OUTPUTS_THAT_MAY_DIFFER = 0.01
"""Where two tokens are as likely as each other, rounding decides."""

Sources = list[list[int]]


def translate(translator: Translator, lines: list[str], *, beam_size: int) -> list[list[int]]:
    """Our outputs, token ids without the end token."""
    found = translator.hypotheses(lines, beam_size=beam_size, max_length_ratio=0.0, max_length_extra=LONGEST)
    return [hypotheses[0].ids for hypotheses in found]


def generate(model: Any, sources: Sources, *, beam_size: int, batch_size: int) -> list[list[int]]:
    """transformers' outputs, token ids without start and end token, in the order of the sources."""
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    outputs: list[list[int]] = [[] for _ in sources]
    search = {"num_beams": beam_size, "length_penalty": 0.6} if beam_size > 1 else {}
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        batch = pad_sequence([torch.tensor(sources[i]) for i in chosen], batch_first=True, padding_value=PAD)
        with torch.inference_mode():
            generated = model.generate(
                input_ids=batch,
                attention_mask=(batch != PAD).long(),
                do_sample=False,
                max_new_tokens=LONGEST + 1,
                suppress_tokens=[PAD, BOS, UNK],
                **search,
            )
        for i, ids in zip(chosen, generated[:, 1:].tolist(), strict=True):
            outputs[i] = ids[: ids.index(EOS)] if EOS in ids else ids[:LONGEST]
    return outputs


def check_equal(ours: list[list[int]], theirs: list[list[int]]) -> None:
    """Stop unless the outputs are equal, but for a few ties."""
    different = sum(a != b for a, b in zip(ours, theirs, strict=True))
    print(f"  greedy outputs: {len(ours) - different:,} of {len(ours):,} equal")
    if different > OUTPUTS_THAT_MAY_DIFFER * len(ours):
        raise RuntimeError("the two decode differently: nothing to compare")


def measure_shape(preset: str, lines: list[str], *, quick: bool) -> list[Row]:
    """The rows of one shape, greedy and with a beam of 5."""
    translator = Translator.load(trained_run(quick=quick))
    if preset == "base":
        translator.model = widened(translator.model)
        lay_out_for_few_rows(translator.model)  # as loading does
    model, tokenizer = translator.model, translator.source_tokenizer
    peer = marian(model.config).eval()
    copy_to_marian(model, peer)
    rows = []
    for beam_size, name in ((1, "greedy"), (5, "beam 5")):
        sources = [[*ids, EOS] for ids in tokenizer.encode_batch(lines)]
        ours = partial(translate, translator, lines, beam_size=beam_size)
        theirs = partial(generate, peer, sources, beam_size=beam_size)
        trial = partial(generate, peer, sources[:TRIAL], beam_size=beam_size)
        sizes = BATCH_SIZES[beam_size]
        size = sizes[1] if quick else min(sizes, key=lambda size: seconds_of(partial(trial, batch_size=size)))
        outputs = ours()
        if beam_size == 1:
            check_equal(outputs, theirs(batch_size=size))
        lengths = [len(ids) + 1 for ids in outputs]
        flops = needed_flops(model.config, [len(ids) for ids in sources], lengths, beam_size=beam_size)
        systems = {OURS: ours, f"{PEER}, batch {size}": partial(theirs, batch_size=size)}
        seconds = take_turns(systems, rounds=1 if quick else ROUNDS[preset, beam_size])
        rows += throughput_rows(
            f"{name}, {preset}", seconds, amount=len(lines), unit="sentences/s", share_of_peak=flops / peak_flops()
        )
    return rows


def measure(quick: bool) -> list[Row]:
    torch.set_num_threads(THREADS)
    lines = text_files().test_lines()[: 16 if quick else SENTENCES]
    return [row for preset in PRESETS[: 1 if quick else None] for row in measure_shape(preset, lines, quick=quick)]


if __name__ == "__main__":
    run_script(measure)
