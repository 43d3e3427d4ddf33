"""How much memory and time a corpus of millions of pairs takes: encoding, planning an epoch, reading it.

    python benchmarks/corpus_memory.py                          2 million made-up sentence pairs
    python benchmarks/corpus_memory.py --source a.en --target a.de --pairs 5000000

Pairs are repeated, with a number at their end so that they differ, until there are enough. Prints the peak
resident memory after each step. Mapped pages of the cache count in it, though the system takes them back when
memory is short.
"""

import argparse
import itertools
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clearhead.text.batches import batches, plan_batches
from clearhead.text.corpus import Corpus, count_unknown
from clearhead.text.readers import CorpusFiles, read_pairs
from clearhead.text.tokenizers import train_tokenizer

TOKENIZER_PAIRS = 200_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="a file to repeat, with --target")
    parser.add_argument("--target", type=Path)
    parser.add_argument("--pairs", type=int, default=2_000_000)
    parser.add_argument("--kind", choices=("char", "word", "bpe", "byte"), default="bpe")
    parser.add_argument("--batch-tokens", type=int, default=4_096)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        with step(f"write {options.pairs:,} pairs"):
            files = repeated(options.source, options.target, options.pairs, Path(folder))
        with step("learn the tokenizer"):
            some = itertools.islice(read_pairs(files), TOKENIZER_PAIRS)
            tokenizer = train_tokenizer(options.kind, (text for pair in some for text in pair[:2]))
        with step("encode"):
            corpus = Corpus.build(Path(folder) / "cache", [files], tokenizer, tokenizer, max_length=256)
        with step("open it again"):
            corpus = Corpus.build(Path(folder) / "cache", [files], tokenizer, tokenizer, max_length=256)
        with step("count unknown symbols"):
            unknown = count_unknown(corpus)
        with step("plan an epoch"):
            plan = plan_batches(corpus, batch_tokens=options.batch_tokens, seed=1, epoch=0)
        with step("go through it"):
            target_tokens = padded = 0
            for batch in batches(corpus, plan):
                target_tokens += batch.target_tokens
                padded += batch.labels.numel()
        size = sum(path.stat().st_size for path in corpus.directory.iterdir())
        print(f"{corpus.report.summary()}; {unknown.summary()}; cache {size / 2**20:,.0f} MiB")
        padding = 1 - target_tokens / padded
        print(f"{len(plan):,} batches, {target_tokens:,} target tokens, {padding:.1%} padding")


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print how long the block takes, and the peak memory of the process so far."""
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    print(f"{name:<28} {seconds:8.1f} s   peak {peak:8,.0f} MiB", flush=True)


def repeated(source: Path | None, target: Path | None, count: int, folder: Path) -> CorpusFiles:
    """Two aligned files of `count` pairs."""
    if source and target:
        texts = [(pair.source, pair.target) for pair in read_pairs(CorpusFiles(source, target))]
    else:
        texts = [(sentence(f"source {number}"), sentence(f"target {number}")) for number in range(30_000)]
    paths = folder / "many.source", folder / "many.target"
    for side, path in enumerate(paths):
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for number, pair in enumerate(itertools.islice(itertools.cycle(texts), count)):
                file.write(f"{pair[side]} {number}\n")
    return CorpusFiles(*paths)


def sentence(seed: str) -> str:
    """Made-up words, about a dozen, of a vocabulary in which a few are frequent."""
    generator = random.Random(seed)
    words = (f"w{int(generator.paretovariate(0.6)) % 20_000:o}" for _ in range(generator.randint(4, 20)))
    return " ".join(words)


if __name__ == "__main__":
    main()
