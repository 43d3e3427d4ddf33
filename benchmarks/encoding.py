"""How many sentences a second become vectors: Clearhead beside transformers, with the same weights.

all-MiniLM-L6-v2, 1,000 texts of one to eight sentences, from the text to the mean of its tokens' states. Both go
through them sorted by length, transformers with the batch size of those tried that suits it best. First the vectors are
compared.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import torch
from torch import Tensor

import clearhead
from benchmarks.data import text_files
from benchmarks.harness import OURS, THREADS, Row, run_script, seconds_of, take_turns, throughput_rows
from benchmarks.published import imported, minilm_folder, transformers
from clearhead.decoding.encoder import TextEncoder

PEER = "transformers (BERT)"
TEXTS = 1000
SENTENCES_A_TEXT = {1: 50, 2: 25, 3: 12, 5: 8, 8: 5}
"""How many texts of a hundred have so many sentences."""
BATCH_SIZES = (8, 16, 32, 64, 128)
"""Tried for transformers, on a quarter of the texts."""
ROUNDS = 7
TOLERANCE = 1e-5


def mixed_texts(count: int) -> list[str]:
    """Test sentences, some of them joined to longer texts."""
    draw, lines = random.Random(1), text_files().test_lines()
    sizes = draw.choices(list(SENTENCES_A_TEXT), list(SENTENCES_A_TEXT.values()), k=count)
    return [" ".join(draw.choices(lines, k=size)) for size in sizes]


@torch.inference_mode()
def theirs(model: Any, tokenizer: Any, texts: list[str], *, batch_size: int) -> Tensor:
    """transformers' vectors, in the order of the texts."""
    encoded = tokenizer(texts, truncation=True, max_length=512)["input_ids"]
    order = sorted(range(len(texts)), key=lambda place: -len(encoded[place]))
    vectors = torch.empty(len(texts), model.config.hidden_size)
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        batch = tokenizer.pad({"input_ids": [encoded[place] for place in places]}, return_tensors="pt")
        real = batch["attention_mask"][:, :, None]
        states = model(**batch).last_hidden_state
        vectors[places] = (states * real).sum(1) / real.sum(1)
    return vectors


def measure(quick: bool) -> list[Row]:
    torch.set_num_threads(THREADS)
    folder = minilm_folder()
    if folder is None:
        return []
    encoder = clearhead.load(imported(folder, "minilm").path, device="cpu")
    assert isinstance(encoder, TextEncoder)
    library = transformers()
    peer = library.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    run = partial(theirs, peer, library.AutoTokenizer.from_pretrained(folder))
    texts = mixed_texts(100 if quick else TEXTS)
    trial = {size: seconds_of(partial(run, texts[::4], batch_size=size)) for size in BATCH_SIZES}
    size = min(trial, key=lambda size: trial[size])
    print("  " + ", ".join(f"batch {size}: {seconds:.2f} s" for size, seconds in trial.items()))
    difference = float((encoder.vectors(texts) - run(texts, batch_size=size)).abs().max())
    print(f"  greatest difference of two numbers: {difference:.1e}")
    if difference > TOLERANCE:
        raise RuntimeError("the two give different vectors: nothing to compare")
    systems = {OURS: partial(encoder.vectors, texts), f"{PEER}, batch {size}": partial(run, texts, batch_size=size)}
    seconds = take_turns(systems, rounds=1 if quick else ROUNDS)
    return throughput_rows("sentence vectors, MiniLM-L6", seconds, amount=len(texts), unit="texts/s")


if __name__ == "__main__":
    run_script(measure)
