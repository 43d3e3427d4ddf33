"""How long one sentence takes, alone and greedily; and how long its first token.

The systems take turns with every sentence. A round's figure is the median over its sentences; the table shows the
median of the rounds. CTranslate2 gets the backend, and one thread or both, that suit it best.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from benchmarks.ctranslate2_peer import BACKENDS, CTranslate2
from benchmarks.ctranslate2_peer import PEER as CTRANSLATE2
from benchmarks.data import text_files
from benchmarks.decoding import INTEGER, INTEGERS, LONGEST, generate, share_of_equal
from benchmarks.decoding import PEER as MARIAN
from benchmarks.harness import OURS, PRESETS, THREADS, Row, cost_rows, run_script, seconds_of
from benchmarks.peers import copy_to_marian, marian
from benchmarks.runs import bench_translator
from clearhead.control_tokens import EOS

SENTENCES = 20
ROUNDS = 3
TRIAL = 9
"""Sentences to choose CTranslate2's threads with."""
LENGTHS = {"one sentence": LONGEST, "first token": 1}
"""Tokens of the output at most. A first token is an output that is cut behind it: what a reader waits for who is shown
each token as it comes."""

OneByOne = Callable[[int], Any]
"""Translates the sentence of that number."""


def latencies(systems: Mapping[str, OneByOne], sentences: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds: each round's median over the sentences. Each sentence begins with another system."""
    names = list(systems)
    medians: dict[str, list[float]] = {name: [] for name in names}
    for round_number in range(rounds):
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for i in range(sentences):
            shift = (round_number + i) % len(names)
            for name in names[shift:] + names[:shift]:
                seconds[name].append(seconds_of(partial(systems[name], i)))
        for name in names:
            medians[name].append(1000 * statistics.median(seconds[name]))
        print(f"  round {round_number + 1}/{rounds}: " + ", ".join(f"{n} {m[-1]:.1f} ms" for n, m in medians.items()))
    return medians


def measure_shape(preset: str, lines: list[str], *, quick: bool) -> list[Row]:
    """The rows of one shape."""
    translators = {name: bench_translator(preset, quick=quick, precision=name) for name in ("float32", INTEGER)}
    translator = translators["float32"]
    theirs = marian(translator.model.config).eval()
    copy_to_marian(translator.model, theirs)
    sources = [[*ids, EOS] for ids in translator.source_tokenizer.encode_batch(lines)]
    rows = []
    with CTranslate2(translator.model) as worker:
        for name, longest in LENGTHS.items():

            def ours(i: int, longest: int = longest, precision: str = "float32") -> list[int]:
                translator = translators[precision]
                found = translator.hypotheses([lines[i]], beam_size=1, max_length_ratio=0.0, max_length_extra=longest)
                return found[0][0].ids

            def their_generate(i: int, longest: int = longest) -> list[int]:
                return generate(theirs, [sources[i]], beam_size=1, longest=longest)[0]

            def ctranslate2(i: int, longest: int = longest, **how: Any) -> Any:
                return worker.translate([sources[i]], beam_size=1, batch_size=1, longest=longest, **how)

            systems: dict[str, dict[str, OneByOne]] = {
                "": {OURS: ours, MARIAN: their_generate},
                f", {INTEGERS}": {OURS: partial(ours, precision=INTEGER)},
            }
            for precision, title in zip(("float32", "int8"), systems, strict=True):
                one = partial(ctranslate2, compute_type=precision)
                best = best_settings(one, before=ours)
                name_of_best = f"{CTRANSLATE2} ({best['backend']}), intra {best['threads'][1]}"
                systems[title][name_of_best] = partial(one, **best)
            if longest > 1:
                outputs = [ours(i) for i in range(len(lines))]
                theirs_too = [ctranslate2(i).value[0] for i in range(len(lines))]
                print(f"  {share_of_equal(outputs, theirs_too):.1%} of {len(lines)} outputs equal to {CTRANSLATE2}'s")
            for title, compared in systems.items():
                medians = latencies(compared, len(lines), 1 if quick else ROUNDS)
                rows += cost_rows(f"{name}, {preset}{title}", medians, unit="ms")
    return rows


def best_settings(one: Callable[..., Any], *, before: OneByOne) -> dict[str, Any]:
    """The backend and the threads of CTranslate2 with which a sentence takes the least, in turns with us: threads that
    have just worked still look for work for a while, and two of theirs then have less than two cores."""

    def trial(settings: dict[str, Any]) -> float:
        one(0, **settings)  # the first call allocates
        seconds = []
        for i in range(TRIAL):
            before(i)
            seconds.append(seconds_of(partial(one, i, **settings)))
        return statistics.median(seconds)

    threads = range(1, THREADS + 1)
    return min(({"backend": name, "threads": (1, count)} for name in BACKENDS for count in threads), key=trial)


def measure(quick: bool) -> list[Row]:
    torch.set_num_threads(THREADS)
    lines = text_files().test_lines(TRIAL if quick else SENTENCES)
    return [row for preset in PRESETS[: 1 if quick else None] for row in measure_shape(preset, lines, quick=quick)]


if __name__ == "__main__":
    run_script(measure)
