"""How the cost grows with the length of the sentences, and with how many stand side by side.

Lengths: training, encoding, and decoding of `tiny` on random tokens, 16 to 1,024 long on both sides. The figures are
tokens a second: bars of one length would mean that a token costs the same everywhere. For decoding, the model can't
end its outputs, so that all are as long as wanted. Batches: decoding of test sentences with more and more of them side
by side, and training on larger and larger batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.ctranslate2_peer import PEER as CTRANSLATE2
from benchmarks.ctranslate2_peer import CTranslate2
from benchmarks.data import VOCABULARY, text_files
from benchmarks.decoding import LONGEST, generate
from benchmarks.decoding import PEER as MARIAN
from benchmarks.harness import OURS, THREADS, Row, run_script, take_turns, throughput_rows
from benchmarks.latency import best_settings
from benchmarks.peers import POSITIONS, copy_to_marian, marian
from benchmarks.runs import bench_translator
from benchmarks.training import SYSTEMS, Setting, shape
from clearhead.control_tokens import EOS
from clearhead.decoding.layout import lay_out_for_few_rows
from clearhead.decoding.translator import Translator
from clearhead.models.transformer import Transformer
from clearhead.text.batches import Batch, collate
from clearhead.text.tokenizers import CONTROL_COUNT, train_tokenizer

LENGTHS = (16, 64, 256, 1024)
TOKENS = 2048
"""Of each side in a training step, and of sources that are encoded."""
DECODED = 4
"""Sentences that are decoded side by side, at every length."""
BATCHES = (1, 8, 32, 128)
SENTENCES = {1: 32, 8: 128, 32: 256, 128: 256}
"""How many are decoded, by how many stand side by side."""
TRAINING_BATCHES = (512, 2048, 8192)
ROUNDS = 3


def random_ids(sentences: int, length: int) -> list[list[int]]:
    """Random tokens, `length` in each sentence."""
    return torch.randint(CONTROL_COUNT, VOCABULARY, (sentences, length)).tolist()


def random_batch(sentences: int, length: int) -> Batch:
    """Pairs of random tokens, `length` long on both sides with the end token."""
    sides = (random_ids(sentences, length - 1) for _ in range(2))
    return collate(list(zip(*sides, strict=True)))


def training_rows(work: str, batch: Batch, at: str, rounds: int) -> list[Row]:
    """Rows of one update."""
    steps = {name: partial(make(shape("tiny", VOCABULARY), Setting()), batch) for name, make in SYSTEMS.items()}
    for step in steps.values():
        step()
    seconds = take_turns(steps, rounds=rounds)
    return throughput_rows(work, seconds, amount=batch.target_tokens, unit="target tokens/s", at=at)


def endless_translator() -> Translator:
    """An untrained tiny model whose end token has a logit of 0, which the best of thousands of others always beats.

    A token is a character, so that a text can be made of any number of tokens.
    """
    letters = "".join(chr(0x4E00 + number) for number in range(VOCABULARY - CONTROL_COUNT))
    tokenizer = train_tokenizer("char", [letters])
    model = Transformer(shape("tiny", VOCABULARY)).eval().requires_grad_(False)
    model.target_embedding.weight[EOS] = 0.0
    model.positions(torch.zeros(1, POSITIONS, model.config.d_model))  # its table of positions grows
    return Translator(model, tokenizer, tokenizer)


def length_rows(lengths: tuple[int, ...], rounds: int) -> Iterator[Row]:
    """Training, encoding and decoding by length."""
    for length in lengths:
        batch = random_batch(TOKENS // length, length)
        yield from training_rows("training tiny, by length", batch, f"{length:,} tokens", rounds)
    translator = endless_translator()
    model = translator.model
    theirs = marian(model.config).eval()
    copy_to_marian(model, theirs)
    with CTranslate2(model) as worker, torch.inference_mode():
        lay_out_for_few_rows(model)
        few = partial(worker.translate, random_ids(DECODED, LENGTHS[0]), batch_size=DECODED, longest=LENGTHS[0])
        short = [translator.source_tokenizer.decode(ids) for ids in random_ids(DECODED, LENGTHS[0] - 1)]
        settings = best_settings(
            lambda _, **how: few(beam_size=1, **how),
            before=lambda _: translator.hypotheses(
                short, beam_size=1, max_length_ratio=0.0, max_length_extra=LENGTHS[0]
            ),
        )
        for length in lengths:
            ids = random_batch(TOKENS // length, length).source
            encoders = {OURS: partial(model.encode, ids), MARIAN: partial(theirs.model.encoder, input_ids=ids)}
            seconds = take_turns(encoders, rounds=rounds)
            yield from throughput_rows(
                "encoding tiny, by length", seconds, amount=TOKENS, unit="source tokens/s", at=f"{length:,} tokens"
            )
        for length in lengths:
            sources = random_ids(DECODED, length - 1)
            lines = [translator.source_tokenizer.decode(ids) for ids in sources]
            sources = [[*ids, EOS] for ids in sources]
            limits: dict[str, Any] = {"beam_size": 1, "max_length_ratio": 0.0, "max_length_extra": length}
            how: dict[str, Any] = {"beam_size": 1, "batch_size": DECODED, "longest": length}
            systems: dict[str, Callable[[], object]] = {
                OURS: partial(translator.hypotheses, lines, **limits),
                MARIAN: partial(generate, theirs, sources, **how),
                CTRANSLATE2: partial(worker.translate, sources, **how, **settings),
            }
            found = [len(one.ids) for (one,) in translator.hypotheses(lines, **limits)]
            found += [len(ids) for ids in worker.translate(sources, **how, **settings).value]
            if set(found) != {length}:
                raise RuntimeError(f"outputs of {set(found)} tokens, where {length} are wanted")
            seconds = take_turns(systems, rounds=rounds)
            yield from throughput_rows(
                "decoding tiny, by length",
                seconds,
                amount=DECODED * length,
                unit="output tokens/s",
                at=f"{length:,} tokens",
            )


def batch_rows(batches: tuple[int, ...], training: tuple[int, ...], rounds: int, *, quick: bool) -> Iterator[Row]:
    """Decoding and training by how much stands side by side."""
    translator = bench_translator("tiny", quick=quick)
    theirs = marian(translator.model.config).eval()
    copy_to_marian(translator.model, theirs)
    with CTranslate2(translator.model) as worker:
        every = [[*ids, EOS] for ids in translator.source_tokenizer.encode_batch(text_files().test_lines(256))]
        backend = worker.best(every, beam_size=1, longest=LONGEST)["backend"]
        for size in batches:
            chosen = text_files().test_lines(SENTENCES[size])
            sources = [[*ids, EOS] for ids in translator.source_tokenizer.encode_batch(chosen)]
            how: dict[str, Any] = {"beam_size": 1, "batch_size": size, "longest": LONGEST}
            limits: dict[str, Any] = {"beam_size": 1, "max_length_ratio": 0.0, "max_length_extra": LONGEST}
            systems: dict[str, Callable[[], object]] = {
                OURS: partial(translator.hypotheses, chosen, batch_size=size, **limits),
                MARIAN: partial(generate, theirs, sources, **how),
                CTRANSLATE2: partial(worker.translate, sources, **how, backend=backend),
            }
            for work in systems.values():
                work()
            seconds = take_turns(systems, rounds=rounds)
            yield from throughput_rows(
                "greedy tiny, by batch", seconds, amount=len(chosen), unit="sentences/s", at=f"{size} side by side"
            )
    for tokens in training:
        batch = random_batch(tokens // 32, 32)
        yield from training_rows("training tiny, by batch", batch, f"{tokens:,} tokens a batch", rounds)


def measure(quick: bool) -> list[Row]:
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    rounds = 1 if quick else ROUNDS
    few = 2 if quick else None
    lengths = length_rows(LENGTHS[:few], rounds)
    return [*lengths, *batch_rows(BATCHES[:few], TRAINING_BATCHES[:few], rounds, quick=quick)]


if __name__ == "__main__":
    run_script(measure)
