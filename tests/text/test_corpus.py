"""The encoded corpus: what is kept, what is reported, and that the cache is whole or absent."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clearhead.errors import DataError, RunError
from clearhead.text.atomic_folder import ABANDONED_SECONDS
from clearhead.text.corpus import Corpus, count_unknown
from clearhead.text.encoded_cache import id_type
from clearhead.text.encoding import PAIRS_AT_A_TIME
from clearhead.text.filtering import FilterReport
from clearhead.text.readers import CorpusFiles, Pair, hold_out, read_pairs
from clearhead.text.tokenizers import EOS, Tokenizer, train_tokenizer

BYTE = train_tokenizer("byte", [])


def aligned(folder: Path, sources: list[str], targets: list[str], name: str = "train") -> CorpusFiles:
    paths = folder / f"{name}.en", folder / f"{name}.de"
    for path, texts in zip(paths, (sources, targets), strict=True):
        path.write_text("".join(text + "\n" for text in texts), encoding="utf-8", newline="\n")
    return CorpusFiles(*paths)


def build(folder: Path, *corpora: CorpusFiles, tokenizer: Tokenizer = BYTE, max_length: int = 256) -> Corpus:
    return Corpus.build(folder / "cache", corpora, tokenizer, tokenizer, max_length=max_length)


def texts_of(corpus: Corpus, tokenizer: Tokenizer = BYTE) -> list[tuple[str, ...]]:
    return [tuple(tokenizer.decode(ids.tolist()) for ids in corpus.pair(index)) for index in range(len(corpus))]


def test_the_pairs_come_back(tmp_path: Path) -> None:
    generator = random.Random(1)
    texts = ["".join(generator.choices("abc é中\u2028", k=generator.randint(1, 30))) + "." for _ in range(10_000)]
    sources, targets = texts[:5_000], texts[5_000:]
    assert len(sources) > PAIRS_AT_A_TIME
    progress: list[int] = []
    files = aligned(tmp_path, sources, targets)
    corpus = Corpus.build(tmp_path / "cache", [files], BYTE, BYTE, max_length=256, on_progress=progress.append)
    assert texts_of(corpus) == list(zip(sources, targets, strict=True))
    assert corpus.source_lengths.tolist() == [len(text.encode()) + 1 for text in sources]
    assert corpus.target_lengths.tolist() == [len(text.encode()) + 1 for text in targets]
    assert (corpus.source_ids[corpus.source_offsets[1:] - 1] == EOS).all()
    assert progress == [PAIRS_AT_A_TIME, 5_000]
    assert corpus.report.summary() == "kept all 5,000 pairs"
    with pytest.raises(IndexError):
        corpus.pair(5_000)


def test_ids_are_as_small_as_the_vocabulary_allows(tmp_path: Path) -> None:
    symbols = [str(number) for number in range(70_000)]
    large, small = train_tokenizer("word", symbols), train_tokenizer("word", symbols[:100])
    files = aligned(tmp_path, ["69999 0", "5"], ["7", "8"])
    corpus = Corpus.build(tmp_path / "cache", [files], large, small, max_length=9)
    assert (corpus.source_ids.dtype, corpus.target_ids.dtype) == (np.dtype("uint32"), np.dtype("uint16"))
    assert large.decode(corpus.pair(0)[0].tolist()) == "69999 0"
    assert (id_type(1 << 16), id_type((1 << 16) + 1)) == ("<u2", "<u4")


def test_the_limit_counts_the_end_token(tmp_path: Path) -> None:
    # case S4: 10 tokens are 11 with the end token
    files = aligned(tmp_path, ["a" * 9, "a" * 10, "a", "a"], ["b", "b", "b" * 9, "b" * 10])
    corpus = build(tmp_path, files, max_length=10)
    assert texts_of(corpus) == [("a" * 9, "b"), ("a", "b" * 9)]
    assert corpus.report.summary() == (
        "kept 2 of 4 pairs; 1 longer than 10 tokens (train.en line 2); 1 longer than 10 tokens (train.de line 4)"
    )


def test_blank_lines_are_skipped_in_pairs_and_reported(tmp_path: Path) -> None:
    # case D4, D6
    sources = ["one", "", "three", "\u00a0\u200b", "five", ""]
    targets = ["eins", "zwei", "  ", "vier", "fünf", ""]
    corpus = build(tmp_path, aligned(tmp_path, sources, targets))
    assert texts_of(corpus) == [("one", "eins"), ("five", "fünf")]
    assert corpus.report.summary() == (
        "kept 2 of 6 pairs; 2 with empty source (train.en lines 2, 4); "
        "1 with empty target (train.de line 3); 1 blank on both sides (train.en line 6)"
    )
    assert corpus.report.total == 6


def test_separators_alone_are_an_empty_text(tmp_path: Path) -> None:
    # case D6
    tokenizer = train_tokenizer("word", ["a|b"], separator="|")
    corpus = build(tmp_path, aligned(tmp_path, ["a|b", "a", "|"], ["b", "||", "b"]), tokenizer=tokenizer)
    assert corpus.report.summary() == (
        "kept 1 of 3 pairs; 1 with empty target (train.de line 2); 1 with empty source (train.en line 3)"
    )


def test_many_findings_are_summed_up(tmp_path: Path) -> None:
    # case S4
    sources = ["long" * 5 if line % 3 == 0 else "ok" for line in range(1, 3001)]
    corpus = build(tmp_path, aligned(tmp_path, sources, ["ok"] * 3000), max_length=20)
    assert corpus.report.summary() == (
        "kept 2,000 of 3,000 pairs; 1,000 longer than 20 tokens (train.en lines 3, 6, 9, …)"
    )
    assert corpus.report.dropped[0].first_lines == list(range(3, 33, 3))
    assert FilterReport.from_dict(json.loads(json.dumps(corpus.report.to_dict()))) == corpus.report


def test_nothing_left_is_an_error_that_says_why(tmp_path: Path) -> None:
    # case D6
    files = aligned(tmp_path, ["a", ""], ["", "b"], name="valid")
    with pytest.raises(DataError, match=r"valid\.en and valid\.de: kept 0 of 2 .*valid\.de line 1.*valid\.en line 2"):
        build(tmp_path, files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["valid.de", "valid.en"]


def test_literal_control_tokens_are_kept_and_noticed_once(tmp_path: Path) -> None:
    # case V1
    sources = ["plain", "a <pad> b", "<s> x </s>", "a < b > c"]
    corpus = build(tmp_path, aligned(tmp_path, sources, ["y"] * 4))
    assert [source for source, _ in texts_of(corpus)] == sources
    assert corpus.report.summary() == (
        "kept all 4 pairs; 2 with <pad>, </s> or the like, taken as ordinary text (train.en lines 2, 3)"
    )


@pytest.mark.parametrize("count", [1, 3, 10, 100])
def test_a_few_pairs_are_enough(count: int, tmp_path: Path) -> None:
    # case D11
    corpus = build(tmp_path, aligned(tmp_path, ["সেট"] * count, ["ชุด"] * count))
    assert len(corpus) == count


def test_several_corpora_and_what_is_left_of_them(tmp_path: Path) -> None:
    first = aligned(tmp_path, ["a", "", "b"], ["1", "2", "3"], name="first")
    (tmp_path / "second.tsv").write_text("c\t4\n\t5\nd\t6\n")
    corpus = build(tmp_path, first, CorpusFiles(pairs=tmp_path / "second.tsv", weight=2.5))
    assert [(part.name, part.start, part.stop, part.weight) for part in corpus.parts] == [
        ("first.en and first.de", 0, 2, 1.0),
        ("second.tsv", 2, 4, 2.5),
    ]
    assert texts_of(corpus) == [("a", "1"), ("b", "3"), ("c", "4"), ("d", "6")]
    assert "second.tsv line 2" in corpus.report.summary()


def test_only_the_selected_pairs(tmp_path: Path) -> None:
    numbers = [str(number) for number in range(50)]
    files = aligned(tmp_path, numbers, numbers)
    train, valid = hold_out([files], seed=1, pairs=10)
    sides = [
        Corpus.build(tmp_path / name, [files], BYTE, BYTE, max_length=9, select=side)
        for name, side in (("train", train), ("valid", valid))
    ]
    assert [len(side) for side in sides] == [40, 10]
    assert sorted((pair for side in sides for pair in texts_of(side)), key=lambda p: int(p[0])) == list(
        zip(numbers, numbers, strict=True)
    )
    assert sides[1].report.total == 10


def test_unknown_symbols_are_counted(tmp_path: Path) -> None:
    tokenizer = train_tokenizer("char", ["abc"])
    corpus = build(tmp_path, aligned(tmp_path, ["abxc", "y"], ["a", "b"]), tokenizer=tokenizer)
    count = count_unknown(corpus)
    assert (count.source, count.source_total, count.target, count.target_total) == (2, 5, 0, 2)
    assert count.summary() == "unknown symbols: source 2 of 5 (40.00%), target none"


def modified(folder: Path) -> float:
    return (folder / "cache" / "corpus.json").stat().st_mtime_ns


def test_the_same_corpus_is_not_encoded_again(tmp_path: Path) -> None:
    files = aligned(tmp_path, ["a", "b"], ["c", "d"])
    build(tmp_path, files)
    first = modified(tmp_path)
    assert texts_of(build(tmp_path, files)) == [("a", "c"), ("b", "d")]
    assert modified(tmp_path) == first
    assert texts_of(Corpus.open(tmp_path / "cache")) == [("a", "c"), ("b", "d")]


def test_whatever_changes_it_is_encoded_again(tmp_path: Path) -> None:
    files = aligned(tmp_path, ["a", "b" * 20], ["c", "d"])
    assert len(build(tmp_path, files)) == 2
    assert len(build(tmp_path, files, max_length=10)) == 1
    char = train_tokenizer("char", ["abcd"])
    assert texts_of(build(tmp_path, files, tokenizer=char, max_length=10), char) == [("a", "c")]
    for source in ("A", "A longer one"):
        files = aligned(tmp_path, [source, "B"], ["C", "D"])
        assert texts_of(build(tmp_path, files)) == [(source, "C"), ("B", "D")]
    changed = files.source_file.stat().st_mtime_ns + 10**9
    files.source_file.write_text(files.source_file.read_text().swapcase())  # as many bytes as before
    os.utime(files.source_file, ns=(changed, changed))
    assert texts_of(build(tmp_path, files)) == [("a LONGER ONE", "C"), ("b", "D")]
    weighted = CorpusFiles(files.source, files.target, weight=3)
    assert build(tmp_path, weighted).parts[0].weight == 3
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("damage", ["cut", "lost", "no json", "other json"])
def test_a_broken_cache_is_named_and_rebuilt(damage: str, tmp_path: Path) -> None:
    files = aligned(tmp_path, ["a", "b"], ["c", "d"])
    build(tmp_path, files)
    cache = tmp_path / "cache"
    match damage:
        case "cut":
            os.truncate(cache / "target.ids", 2)  # one id of four
        case "lost":
            (cache / "source.offsets").unlink()
        case "no json":
            (cache / "corpus.json").write_text("{")
        case "other json":
            (cache / "corpus.json").write_text('{"parts": 5}')
    with pytest.raises(RunError, match="cache"):
        Corpus.open(cache)
    assert texts_of(build(tmp_path, files)) == [("a", "c"), ("b", "d")]


def test_other_peoples_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="holds other files"):
        build(tmp_path, aligned(tmp_path, ["a"], ["b"]))
    assert (tmp_path / "cache" / "thesis.txt").read_text() == "mine"
    with pytest.raises(RunError, match="no encoded corpus"):
        Corpus.open(tmp_path / "cache")


def test_an_interrupted_build_leaves_nothing(tmp_path: Path) -> None:
    files = aligned(tmp_path, ["a"] * 9000, ["b"] * 9000)

    def interrupt(pairs_read: int) -> None:
        if pairs_read > PAIRS_AT_A_TIME:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Corpus.build(tmp_path / "cache", [files], BYTE, BYTE, max_length=9, on_progress=interrupt)
    files.target_file.write_bytes(b"b\n" * 8999 + b"\xff\n")
    with pytest.raises(DataError, match=r"train\.de, line 9000"):
        build(tmp_path, files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.de", "train.en"]


BUILDER = """
import sys
from pathlib import Path
from clearhead.text.corpus import Corpus
from clearhead.text.readers import CorpusFiles
from clearhead.text.tokenizers import train_tokenizer
folder = Path(sys.argv[1])
byte = train_tokenizer("byte", [])
files = CorpusFiles(folder / "train.en", folder / "train.de")
corpus = Corpus.build(folder / "cache", [files], byte, byte, max_length=99, on_progress=eval(sys.argv[2]))
print(len(corpus), int(corpus.source_ids.sum()))
"""


def test_several_processes_build_it_at_once(tmp_path: Path) -> None:
    aligned(tmp_path, [str(number) for number in range(20_000)], ["b"] * 20_000)
    command = [sys.executable, "-c", BUILDER, tmp_path, "None"]
    builders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = {builder.communicate()[0] for builder in builders}
    assert [builder.returncode for builder in builders] == [0, 0, 0]
    assert len(outputs) == 1
    assert outputs.pop().startswith("20000 ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "train.de", "train.en"]


def test_a_killed_build_is_no_cache_and_is_cleared_away_later(tmp_path: Path) -> None:
    files = aligned(tmp_path, ["a"] * 9000, ["b"] * 9000)
    kill = "lambda count: __import__('os').kill(__import__('os').getpid(), 9)"
    subprocess.run([sys.executable, "-c", BUILDER, tmp_path, kill], check=False)
    assert not (tmp_path / "cache").exists()
    (left_behind,) = tmp_path.glob(".cache.building-*")
    for path in (*left_behind.iterdir(), left_behind):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 2 * ABANDONED_SECONDS))
    assert len(build(tmp_path, files)) == 9000
    assert not left_behind.exists()


def test_a_build_in_progress_is_not_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".cache.building-other").mkdir()
    build(tmp_path, aligned(tmp_path, ["a"], ["b"]))
    assert (tmp_path / ".cache.building-other").exists()


def test_a_full_disk_is_our_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full, the device that is always full")
    files = aligned(tmp_path, ["a" * 50] * 9000, ["b"] * 9000)
    open_path = Path.open

    def open_full(path: Path, mode: str = "r", *arguments: object, **options: object) -> object:
        return open_path(Path("/dev/full") if path.name == "source.ids" else path, mode)

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(RunError, match="can't write the encoded corpus: No space left"):
        build(tmp_path, files)
    assert not (tmp_path / "cache").exists()


def data_folder() -> Path:
    default = Path(__file__).parents[2].parent / "shared" / "data"
    folder = Path(os.environ.get("CLEARHEAD_DATA", default))
    if not folder.is_dir():
        pytest.skip("the measuring data is absent (CLEARHEAD_DATA names its folder)")
    return folder


@pytest.mark.parametrize(
    ("name", "format", "pairs", "last"),
    [
        ("sigmorphon2021-g2p-ice/ice_train.tsv", None, 800, None),
        ("tatoeba-en-zh/dev.tsv", None, 1_163, None),
        ("cmudict-g014b2b/g014b2b.train", "tsv", 113_438, Pair("ZZZZ", "Z Z", 113_438)),
    ],
)
def test_real_files_of_pairs(name: str, format: str | None, pairs: int, last: Pair | None) -> None:
    read = list(read_pairs(CorpusFiles(pairs=data_folder() / name, format=format)))  # type: ignore[arg-type]
    assert len(read) == pairs
    assert last is None or read[-1] == last


@pytest.mark.slow
def test_the_whole_of_multi30k(tmp_path: Path) -> None:
    folder = data_folder() / "multi30k-en-de"
    files = CorpusFiles(folder / "train.en", folder / "train.de")
    tokenizer = train_tokenizer("bpe", (text for pair in read_pairs(files) for text in pair[:2]))
    corpus = build(tmp_path, files, tokenizer=tokenizer)
    assert len(corpus) == 29_000
    expected = [(pair.source, pair.target) for pair in read_pairs(files)]
    assert texts_of(corpus, tokenizer) == expected
