"""How many sentences a second are translated: Clearhead beside CTranslate2 and transformers' `generate`.

All have the same weights. They are those of a short training of the tiny shape (benchmarks/runs.py), so that outputs
have the lengths of real ones; the base model computes the same (benchmarks/widen.py). All translate the same test
sentences, each peer with the batch size of those tried that suits it best, Clearhead with its defaults. First the
outputs are compared token by token.

In float32, and in integers: CTranslate2's of 8 bits, ours too where the processor can, else of 16. Beside those stands
how many outputs they change.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from benchmarks.ctranslate2_peer import PEER as CTRANSLATE2
from benchmarks.ctranslate2_peer import CTranslate2, Sources
from benchmarks.data import text_files
from benchmarks.harness import OURS, PRESETS, THREADS, Row, rows_of, run_script, seconds_of, take_turns, throughput_rows
from benchmarks.machine import peak_flops
from benchmarks.peers import copy_to_marian, marian
from benchmarks.runs import bench_translator
from clearhead import kernels
from clearhead.control_tokens import BOS, EOS, PAD, UNK
from clearhead.decoding.translator import Translator
from clearhead.evaluation.speed import needed_flops

PEER = "transformers (Marian)"
LONGEST = 60
"""All cut an output there."""
BATCH_SIZES = {1: (32, 64, 128), 5: (16, 32, 64)}
"""Tried for `generate`, by beam size, on the first `TRIAL` sentences."""
TRIAL = 100
SENTENCES = {("tiny", 1): 1000, ("tiny", 5): 500, ("base", 1): 1000, ("base", 5): 200}
ROUNDS = {("tiny", 1): 5, ("tiny", 5): 3, ("base", 1): 3, ("base", 5): 7}
"""By shape and beam size; a round of base with a beam takes minutes."""
INTEGER = "int8" if kernels.has("int8") else "int16"
"""Ours, the fastest that this processor can."""
INTEGERS = "int8" if INTEGER == "int8" else "int16 / int8"
MOST_DIFFERENT = {1: 0.01, 5: 0.05}
"""The share of outputs that may differ, by beam size. Where two tokens are as likely as each other, rounding decides;
and the peers' length penalty can only be made nearly ours."""

Outputs = list[list[int]]


def peers_length_penalty(ours: float, lengths: list[int]) -> float:
    """The exponent that does to outputs of these lengths what ours does.

    Ours divides by `((5 + length) / 6) ** alpha`, the peers by `length ** alpha`. What ranks two hypotheses is how the
    logarithm grows with that of the length: by `alpha * length / (5 + length)`, and by their alpha.
    """
    length = statistics.mean(lengths)
    return ours * length / (5 + length)


def translate(translator: Translator, lines: list[str], *, beam_size: int) -> Outputs:
    """Our outputs, token ids without the end token."""
    found = translator.hypotheses(lines, beam_size=beam_size, max_length_ratio=0.0, max_length_extra=LONGEST)
    return [hypotheses[0].ids for hypotheses in found]


def generate(
    model: Any,
    sources: Sources,
    *,
    beam_size: int,
    batch_size: int = 1,
    length_penalty: float = 0.0,
    longest: int = LONGEST,
) -> Outputs:
    """transformers' outputs, token ids without start and end token, in the order of the sources."""
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    outputs: Outputs = [[] for _ in sources]
    search = {"num_beams": beam_size, "length_penalty": length_penalty} if beam_size > 1 else {}
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        batch = pad_sequence([torch.tensor(sources[i]) for i in chosen], batch_first=True, padding_value=PAD)
        batch = batch.to(model.device)
        with torch.inference_mode():
            generated = model.generate(
                input_ids=batch,
                attention_mask=(batch != PAD).long(),
                do_sample=False,
                max_new_tokens=longest + 1,
                suppress_tokens=[PAD, BOS, UNK],
                **search,
            )
        for i, ids in zip(chosen, generated[:, 1:].tolist(), strict=True):
            outputs[i] = ids[: ids.index(EOS)] if EOS in ids else ids[:longest]
    return outputs


def share_of_equal(ours: Outputs, theirs: Outputs) -> float:
    """How many of the outputs are the same, token by token."""
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours)


def require_equal(ours: Outputs, theirs: Outputs, peer: str, *, beam_size: int) -> None:
    """Stop unless the outputs are equal, but for a few."""
    share = share_of_equal(ours, theirs)
    print(f"  outputs with beam {beam_size}: {share:.1%} of {len(ours):,} equal to those of {peer}")
    if 1 - share > MOST_DIFFERENT[beam_size]:
        raise RuntimeError("the two decode differently: nothing to compare")


def measure_search(
    preset: str,
    translators: dict[str, Translator],
    peers: tuple[Any, CTranslate2],
    lines: list[str],
    beam_size: int,
    *,
    quick: bool,
) -> list[Row]:
    """The rows of one shape and beam size, in float32 and in integers."""
    translator = translators["float32"]
    name = f"{'greedy' if beam_size == 1 else f'beam {beam_size}'}, {preset}"
    sources = [[*ids, EOS] for ids in translator.source_tokenizer.encode_batch(lines)]
    ours = partial(translate, translator, lines, beam_size=beam_size)
    outputs = ours()
    lengths = [len(ids) + 1 for ids in outputs]
    how: dict[str, Any] = {
        "beam_size": beam_size,
        "length_penalty": peers_length_penalty(translator.options.length_penalty, lengths),
    }
    their_generate = partial(generate, peers[0], **how)
    sizes = BATCH_SIZES[beam_size]
    size = sizes[1]
    if not quick:
        size = min(sizes, key=lambda size: seconds_of(partial(their_generate, sources[:TRIAL], batch_size=size)))
    theirs: Callable[[], Any] = partial(their_generate, sources, batch_size=size)
    ours_in_integers = partial(translate, translators[INTEGER], lines, beam_size=beam_size)
    systems: dict[str, dict[str, Callable[[], object]]] = {
        "float32": {OURS: ours, f"{PEER}, batch {size}": theirs},
        "int8": {OURS: ours_in_integers},
    }
    found = {PEER: theirs()}
    rows = []
    for precision in ("float32", "int8"):
        kind: dict[str, Any] = {"longest": LONGEST, "compute_type": precision, **how}
        best = {"backend": "oneDNN", "batch_size": 64} if quick else peers[1].best(sources, **kind)
        theirs = partial(peers[1].translate, sources, **best, **kind)
        systems[precision][f"{CTRANSLATE2} ({best['backend']}), batch {best['batch_size']}"] = theirs
        found[precision] = theirs().value
    require_equal(outputs, found[PEER], PEER, beam_size=beam_size)
    require_equal(outputs, found["float32"], CTRANSLATE2, beam_size=beam_size)
    flops = (
        needed_flops(translator.model.config, [len(ids) for ids in sources], lengths, beam_size=beam_size)
        / peak_flops()
    )
    for precision, compared in systems.items():
        seconds = take_turns(compared, rounds=1 if quick else ROUNDS[preset, beam_size])
        work = name if precision == "float32" else f"{name}, {INTEGERS}"
        share = flops if precision == "float32" else None
        rows += throughput_rows(work, seconds, amount=len(lines), unit="sentences/s", share_of_peak=share)
    equal = {
        OURS: [100 * share_of_equal(outputs, ours_in_integers())],
        CTRANSLATE2: [100 * share_of_equal(found["float32"], found["int8"])],
    }
    return [*rows, *rows_of(f"{name}, outputs of {INTEGERS} equal to float32", equal, unit="%", best=max)]


def measure_shape(preset: str, *, quick: bool) -> list[Row]:
    """The rows of one shape, greedy and with a beam of 5."""
    translators = {name: bench_translator(preset, quick=quick, precision=name) for name in ("float32", INTEGER)}
    model = translators["float32"].model
    theirs = marian(model.config).eval()
    copy_to_marian(model, theirs)
    rows = []
    with CTranslate2(model) as worker:
        for beam_size in BATCH_SIZES:
            lines = text_files().test_lines(16 if quick else SENTENCES[preset, beam_size])
            rows += measure_search(preset, translators, (theirs, worker), lines, beam_size, quick=quick)
    return rows


def measure(quick: bool) -> list[Row]:
    torch.set_num_threads(THREADS)
    return [row for preset in PRESETS[: 1 if quick else None] for row in measure_shape(preset, quick=quick)]


if __name__ == "__main__":
    run_script(measure)
