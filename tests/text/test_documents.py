"""Texts to documents, tokens and blocks: nothing is lost, nothing is mixed, and an epoch follows from its number."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from clearhead.control_tokens import BOS, EOS, PAD, UNK
from clearhead.errors import ConfigError, DataError
from clearhead.text.control import Control
from clearhead.text.document_corpus import DocumentCorpus
from clearhead.text.documents import LONGEST, TextFiles, find_files, read_documents
from clearhead.text.language_tokenizer import train_language_tokenizer
from clearhead.text.masking import Masking
from clearhead.text.packing import BlockPlan, pack
from clearhead.text.pretrained import PretrainedTokenizer


def texts_of(files: TextFiles) -> list[str]:
    return [document.text for document in read_documents([files])]


# case D1
# case D8
def test_what_a_document_is(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\u2028still one\r\ntwo\n\n \n\nthree\nfour".encode())
    assert texts_of(TextFiles((path,))) == ["one\u2028still one\ntwo\n\n \n\nthree\nfour"]
    assert texts_of(TextFiles((path,), "lines")) == ["one\u2028still one", "two", "", " ", "", "three", "four"]
    assert texts_of(TextFiles((path,), "blank_lines")) == ["one\u2028still one\ntwo", "three\nfour"]
    assert [d.line for d in read_documents([TextFiles((path,), "blank_lines")])] == [1, 6]


def test_gzip_json_lines_and_patterns(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.txt.gz").write_bytes(gzip.compress(b"packed"))
    (tmp_path / "deep" / "a.txt").write_text("plain")
    (tmp_path / "c.jsonl").write_text(
        json.dumps({"body": {"en": "one\ntwo"}}) + "\n" + json.dumps({"body": {"en": "x"}})
    )
    assert texts_of(TextFiles(find_files(tmp_path, "**/*.txt*"))) == ["plain", "packed"]
    assert texts_of(TextFiles(find_files(tmp_path, "c.jsonl"), column="body.en")) == ["one\ntwo", "x"]
    with pytest.raises(DataError, match=r"c\.jsonl, line 1: no 'text' in it"):
        texts_of(TextFiles((tmp_path / "c.jsonl",)))
    with pytest.raises(ConfigError, match=r"\*\.md: no such file in .*data\.root"):
        find_files(tmp_path, "*.md")


# case D7
def test_bytes_that_are_no_utf_8_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ok\nd\xe9j\xe0\n")
    with pytest.raises(DataError, match=r"a\.txt, line 2: byte 0xe9"):
        texts_of(TextFiles((tmp_path / "a.txt",)))


def test_a_file_of_more_than_a_million_characters_is_cut_at_line_ends(tmp_path: Path) -> None:
    lines = ["x" * 99] * (LONGEST // 100 + 50)
    (tmp_path / "a.txt").write_text("\n".join(lines))
    parts = texts_of(TextFiles((tmp_path / "a.txt",)))
    assert len(parts) == 2
    assert "\n".join(parts).split("\n") == lines


def make_tokenizer(
    tmp_path: Path, kind: str = "char", *, whole: bool = False, texts=("abc defgh",)
) -> PretrainedTokenizer:
    made, control = train_language_tokenizer(kind, texts, vocab_size=None, reads_whole_texts=whole)
    (tmp_path / "tokenizer.json").write_text(made, encoding="utf-8")
    return PretrainedTokenizer.load(tmp_path / "tokenizer.json", control)


# case V1
# case V2
# case V3
@pytest.mark.parametrize("kind", ["char", "byte", "bpe"])
@pytest.mark.parametrize("whole", [False, True])
def test_the_tokenizer_is_lossless_and_no_text_steers(tmp_path: Path, kind: str, whole: bool) -> None:
    text = "a  <s> b</s> [MASK] <pad>\n\tc <unk>… é "
    tokenizer = make_tokenizer(tmp_path, kind, whole=whole, texts=[text] * 5)
    ids = tokenizer.encode(text)
    assert tokenizer.control == Control(
        start=BOS, end=(EOS,), padding=PAD, unknown=UNK, mask=tokenizer.vocab_size - 1 if whole else None
    )
    assert ids[0] == BOS
    assert (ids[-1] == EOS) == whole
    inner = ids[1:-1] if whole else ids[1:]
    assert not tokenizer.special_ids() & set(inner)
    assert tokenizer.encode_bare(text) == inner
    assert tokenizer.decode(ids) == text
    if whole:
        masked = tokenizer.encode_masked("a[MASK]b")
        assert masked == [BOS, *tokenizer.encode_bare("a"), tokenizer.control.mask, *tokenizer.encode_bare("b"), EOS]


def test_the_vocabulary_has_the_size_that_was_asked_for() -> None:
    texts = ["some words that are there, and there again, and some more words"] * 20
    for whole in (False, True):
        made, _ = train_language_tokenizer("bpe", texts, vocab_size=300, reads_whole_texts=whole)
        assert len(json.loads(made)["model"]["vocab"]) <= 300


@pytest.fixture
def corpus(tmp_path: Path) -> DocumentCorpus:
    """40 documents of 1 to 17 letters, and a blank one."""
    rng = np.random.default_rng(3)
    lines = ["".join(rng.choice(list("abcdefgh"), size=int(rng.integers(1, 18)))) for _ in range(40)]
    (tmp_path / "a.txt").write_text("\n".join([*lines[:5], " ", *lines[5:]]))
    corpus = DocumentCorpus.build(
        tmp_path / "cache", [TextFiles((tmp_path / "a.txt",), "lines")], make_tokenizer(tmp_path)
    )
    tokenizer = make_tokenizer(tmp_path)
    assert [corpus.document(i).tolist() for i in range(40)] == [[*tokenizer.encode(line), EOS] for line in lines]
    return corpus


# case D6
def test_blank_documents_are_left_out_and_reported(corpus: DocumentCorpus) -> None:
    assert corpus.report.summary() == "kept 40 of 41 documents; 1 blank (a.txt line 6)"


def test_the_cache_is_used_again_until_something_changes(tmp_path: Path, corpus: DocumentCorpus) -> None:
    files = [TextFiles((tmp_path / "a.txt",), "lines")]
    before = (tmp_path / "cache" / "text.ids").stat().st_ino
    DocumentCorpus.build(tmp_path / "cache", files, make_tokenizer(tmp_path))
    assert (tmp_path / "cache" / "text.ids").stat().st_ino == before
    other = DocumentCorpus.build(tmp_path / "cache", [TextFiles((tmp_path / "a.txt",))], make_tokenizer(tmp_path))
    assert len(other) == 1


# case T2
@pytest.mark.parametrize("shuffle", [False, True])
def test_an_epoch_is_every_document_once_and_each_token_says_the_next(corpus: DocumentCorpus, shuffle: bool) -> None:
    plan = BlockPlan(corpus, block_length=16, seed=5, epoch=2, shuffle=shuffle)
    blocks = [plan[number] for number in range(len(plan))]
    assert sum(len(block.ids) for block in blocks) == len(corpus.ids)
    assert all(len(block.ids) <= 16 for block in blocks)
    assert sum(len(block.ids) == 16 for block in blocks) >= len(blocks) - 2
    pieces = []
    for block in blocks:
        starts = np.flatnonzero(block.positions == 0)
        assert np.array_equal(block.documents, np.cumsum(block.positions == 0) - 1)
        for start, stop in zip(starts, [*starts[1:], len(block.ids)], strict=True):
            assert block.positions[start:stop].tolist() == list(range(stop - start))
            assert block.following[start : stop - 1].tolist() == block.ids[start + 1 : stop].tolist()
            last_says = int(block.following[stop - 1])
            assert (last_says == -1) == (block.ids[stop - 1] == EOS)
            pieces.append((block.ids[start:stop].tolist(), last_says))
    whole = sorted(tuple(ids) for ids, _ in pieces if ids[0] == BOS and ids[-1] == EOS)
    found = [id for ids, last in pieces for id in (*ids[1:], last) if id >= 0]
    expected = np.concatenate([corpus.document(i)[1:] for i in range(len(corpus))])
    assert sorted(found) == sorted(expected.tolist())  # every token but the documents' first is said once
    assert set(whole) <= {tuple(corpus.document(i).tolist()) for i in range(len(corpus))}


def test_epochs_differ_and_are_the_same_each_time(corpus: DocumentCorpus) -> None:
    def ids(epoch: int, seed: int = 1) -> list[list[int]]:
        plan = BlockPlan(corpus, block_length=16, seed=seed, epoch=epoch)
        return [plan[number].ids.tolist() for number in range(len(plan))]

    assert ids(0) == ids(0)
    assert ids(0) != ids(1)
    assert ids(0) != ids(0, seed=2)


def test_a_batch_pads_the_short_block_and_asks_nothing_of_padding(corpus: DocumentCorpus) -> None:
    plan = BlockPlan(corpus, block_length=50, seed=0, epoch=0, shuffle=False)
    blocks = [plan[0], plan[len(plan) - 1]]
    assert len(blocks[1].ids) < 50
    batch = pack(blocks, [block.ids for block in blocks], [block.following for block in blocks])
    assert batch.ids.shape == (2, 50)
    assert batch.ids[1, len(blocks[1].ids) :].eq(PAD).all()
    assert batch.documents[1, len(blocks[1].ids) :].eq(-1).all()
    assert not batch.one_document
    wanted = np.concatenate([block.following[block.following >= 0] for block in blocks])
    assert batch.labels.tolist() == wanted.tolist()
    assert batch.target_tokens == len(batch.rows) == len(wanted)


# Devlin et al. (2019), section 3.1 and appendix A.1: 15 %, of which 80, 10 and 10.
def test_the_proportions_of_masks_are_those_of_the_paper() -> None:
    masking = Masking(mask=99, vocab_size=100, control=[0, 1, 2, 3, 99])
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 99, 400_000)
    found = masking.apply(ids, np.random.default_rng(1))
    text = ids > 3
    chosen = found.wanted >= 0
    assert not chosen[~text].any()
    assert np.array_equal(found.wanted[chosen], ids[chosen])  # labels are what was there
    assert np.array_equal(found.shown[~chosen], ids[~chosen])  # and nothing else changes

    def near(count: int, of: int, share: float) -> bool:
        return abs(count - share * of) < 4.5 * (of * share * (1 - share)) ** 0.5  # once in 100,000 by chance

    assert near(int(chosen.sum()), int(text.sum()), 0.15)
    masked = chosen & (found.shown == 99)
    replaced = chosen & ~masked & (found.shown != ids)
    assert near(int(masked.sum()), int(chosen.sum()), 0.8)
    assert near(int(replaced.sum()), int(chosen.sum()), 0.1 * 94 / 95)  # one in 95 is replaced by itself
    assert near(int((chosen & ~masked & ~replaced).sum()), int(chosen.sum()), 0.1 + 0.1 / 95)
    counts = np.bincount(found.shown[replaced], minlength=100)
    assert counts[[0, 1, 2, 3, 99]].sum() == 0
    assert counts[4:99].min() > 0.5 * counts[4:99].mean()  # any of the others, about as often


def test_masks_follow_from_the_generator_alone_and_something_is_always_asked() -> None:
    masking = Masking(mask=9, vocab_size=10, control=[0, 1, 2, 3, 9])
    ids = np.array([1, 5, 2])
    for seed in range(50):
        first, second = (masking.apply(ids, np.random.default_rng(seed)) for _ in range(2))
        assert first.wanted.tolist() == second.wanted.tolist() == [-1, 5, -1]
        assert first.shown.tolist() == second.shown.tolist()
    assert masking.apply(np.array([1, 2]), np.random.default_rng(0)).wanted.tolist() == [-1, -1]
