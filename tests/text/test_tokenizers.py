"""Tokenizers: what goes in comes out, and no text makes a control id."""

import functools
import itertools
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import ConfigError, DataError, RunError
from clearhead.text.tokenizers import (
    BOS,
    CONTROL_COUNT,
    EOS,
    PAD,
    UNK,
    Tokenizer,
    TokenizerKind,
    train_tokenizer,
)

KINDS: tuple[TokenizerKind, ...] = get_args(TokenizerKind)

# What tokenizers elsewhere lose, change or take for their own signs.
DIFFICULT = [
    "two  spaces",
    "   leading and trailing  ",
    "tab\tand\u00a0no-break space",
    "dots… and ﬁ and ︰",
    "family 👨\u200d👩\u200d👧 and flag 🇮🇸",
    "NFD e\u0301 and NFC é",
    "▁ itself ▁▁, @@ itself@@ and ## too, Ġ and Ċ",
    "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg",
    "line\nbreak",
    "\ufeffmark",
    "\0\x01\x7f",
    "literal <pad> <s> </s> <unk> <blank> <pad > [PAD] <|endoftext|>",
    "हिन्दी ไทย 中文 العربية",
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@functools.cache
def trained(kind: TokenizerKind) -> Tokenizer:
    return train_tokenizer(kind, DIFFICULT * 3, vocab_size=400)


def folded(text: str, separator: str = " ") -> str:
    """What is left of a text where runs of separators count as one."""
    return separator.join(symbol for symbol in text.split(separator) if symbol)


@pytest.mark.parametrize("text", DIFFICULT)
@pytest.mark.parametrize("kind", KINDS)
def test_difficult_texts_come_back(kind: TokenizerKind, text: str) -> None:
    # case V3; D1 too, for the false line ends
    ids = trained(kind).encode(text)
    assert trained(kind).decode(ids) == (folded(text) if kind == "word" else text)
    assert len(trained(kind).tokens(ids)) == len(ids)


@pytest.mark.parametrize("kind", ["bpe", "byte"])
@given(text=texts)
@settings(deadline=None)
def test_bytes_spell_every_text(kind: TokenizerKind, text: str) -> None:
    # case V3: also what was never seen in training
    ids = trained(kind).encode(text)
    assert trained(kind).decode(ids) == text
    assert min(ids, default=UNK + 1) >= CONTROL_COUNT


@given(text=texts)
@settings(deadline=None)
def test_unseen_characters_become_unknown(text: str) -> None:
    seen = set("".join(DIFFICULT))
    ids = trained("char").encode(text)
    assert [token == UNK for token in ids] == [character not in seen for character in text]
    assert trained("char").decode(ids) == "".join(c if c in seen else "\ufffd" for c in text)


LOOKALIKES = [
    "<pad>",
    "<s>",
    "</s>",
    "<unk>",
    "<pad >",
    "<s >",
    "</s >",
    "<unk >",
    "<blank>",
    "<|endoftext|>",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("separator", [" ", "", ">", "x <pad> "])
def test_no_text_makes_a_control_id(kind: TokenizerKind, separator: str) -> None:
    # case V1, V2: learned from such texts and used on them, the ids are ordinary ones and spell the same text
    for texts in itertools.permutations(LOOKALIKES, 2):
        text = separator.join(texts)
        tokenizer = train_tokenizer(kind, [text] * 5)
        ids = tokenizer.encode(text)
        assert min(ids) >= CONTROL_COUNT
        assert tokenizer.decode(ids) == (folded(text) if kind == "word" else text)


@pytest.mark.parametrize("kind", KINDS)
def test_decode_strips_only_real_control_ids(kind: TokenizerKind) -> None:
    # case V2
    tokenizer = trained(kind)
    text = "literal <pad> <s> </s>"
    ids = [BOS, *tokenizer.encode(text), EOS, PAD, PAD]
    assert tokenizer.decode(ids) == text
    assert tokenizer.tokens(ids)[0] == "<s>"
    assert tokenizer.tokens(ids)[-3:] == ["</s>", "<pad>", "<pad>"]


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_ids_are_shown(kind: TokenizerKind) -> None:
    tokenizer = trained(kind)
    assert tokenizer.decode([UNK]) == "\ufffd"
    assert tokenizer.decode([tokenizer.vocab_size + 5]) == "\ufffd"
    assert tokenizer.tokens([UNK]) == ["<unk>"]


def test_broken_characters_are_shown() -> None:
    byte = trained("byte")
    assert byte.decode(byte.encode("é")[:1]) == "\ufffd"
    assert byte.tokens(byte.encode("é a")) == ["\\xc3", "\\xa9", "▁", "a"]
    assert byte.encode("é") == [0xC3 + CONTROL_COUNT, 0xA9 + CONTROL_COUNT]


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_is_the_same(kind: TokenizerKind, tmp_path: Path) -> None:
    # case D1: false line ends in the vocabulary too
    path = tmp_path / "tokenizer.json"
    trained(kind).save(path)
    loaded = Tokenizer.load(path)
    assert loaded == trained(kind)
    assert (loaded.kind, loaded.separator, loaded.vocab_size) == (kind, " ", trained(kind).vocab_size)
    assert loaded.encode_batch(DIFFICULT) == trained(kind).encode_batch(DIFFICULT)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_symbols_of_several_characters_stay_whole() -> None:
    # case V7
    tokenizer = train_tokenizer("word", ["IH1 TH", "tʰ e\u0301 AE"])
    ids = tokenizer.encode("TH IH1 e\u0301 tʰ  TH ")
    assert len(ids) == 5
    assert tokenizer.decode(ids) == "TH IH1 e\u0301 tʰ TH"
    assert tokenizer.tokens(ids) == ["TH", "IH1", "e\u0301", "tʰ", "TH"]


@pytest.mark.parametrize("separator", ["|", " | ", "\t", ".", "\\d", "中"])
def test_the_separator_can_be_chosen(separator: str, tmp_path: Path) -> None:
    # case V7
    text = separator.join(["two words", "<pad>", "TH"])
    tokenizer = train_tokenizer("word", [text], separator=separator)
    tokenizer.save(tmp_path / "t.json")
    loaded = Tokenizer.load(tmp_path / "t.json")
    assert loaded.separator == separator
    assert loaded.tokens(loaded.encode(text)) == ["two▁words", "<pad>", "TH"]
    assert loaded.decode(loaded.encode(text)) == text
    assert loaded.encode(f"<pad{separator}>") == [UNK, UNK]


@pytest.mark.parametrize("kind", ["char", "word"])
def test_symbols_are_counted(kind: TokenizerKind) -> None:
    texts = ["a b b c c c"] * 2 + ["d"]
    assert train_tokenizer(kind, texts, min_count=4).encode("d") == [UNK]
    smallest = train_tokenizer(kind, texts, vocab_size=CONTROL_COUNT + 1)
    assert smallest.vocab_size == CONTROL_COUNT + 1
    assert UNK not in smallest.encode("c" if kind == "word" else " ")


def test_bpe_learns_up_to_its_size() -> None:
    lines = ["the cat sat on the mat", "the dog sat on the log"] * 10
    assert train_tokenizer("bpe", lines, vocab_size=270).vocab_size == 270
    tokenizer = train_tokenizer("bpe", lines)
    assert tokenizer.tokens(tokenizer.encode("the cat")) == ["the", "▁cat"]
    # Combining marks stay in their words.
    assert train_tokenizer("bpe", ["कि"] * 5).tokens(train_tokenizer("bpe", ["कि"] * 5).encode("कि")) == ["कि"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_handful_of_texts_is_enough(kind: TokenizerKind) -> None:
    # case D11: whatever the characters
    for text in ("سلام", "হ্যালো", "สวัสดี", "a"):
        tokenizer = train_tokenizer(kind, [text])
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_training_gives_the_same_in_every_process(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from clearhead.text.tokenizers import train_tokenizer\n"
        "texts = [f'{i * i} some {i % 7} words<{i % 11}>' for i in range(400)]\n"
        "for kind in ('char', 'word', 'bpe'): train_tokenizer(kind, texts).save(Path(sys.argv[1] + kind))"
    )
    for run in "ab":
        subprocess.run([sys.executable, "-c", program, tmp_path / run], check=True)
    for kind in ("char", "word", "bpe"):
        assert (tmp_path / f"a{kind}").read_bytes() == (tmp_path / f"b{kind}").read_bytes()


def test_impossible_tokenizers_are_refused() -> None:
    with pytest.raises(ConfigError, match="vocab_size=100 is too small: a bpe tokenizer needs at least 260"):
        train_tokenizer("bpe", [], vocab_size=100)
    with pytest.raises(ConfigError, match="separator"):
        train_tokenizer("word", ["a"], separator="")


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_refused(kind: TokenizerKind) -> None:
    with pytest.raises(DataError, match=r"text 2 holds U\+D83D at position 1"):
        trained(kind).encode_batch(["a", "b\ud83d"])


@pytest.mark.parametrize("content", [None, "", "{}", '{"model": 1}', "\0", "[]"])
def test_broken_files_are_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "t.json").write_text(content)
    with pytest.raises(RunError, match=r"t\.json"):
        Tokenizer.load(tmp_path / "t.json")


def test_a_foreign_tokenizer_is_refused(tmp_path: Path) -> None:
    tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(tmp_path / "t.json"))
    with pytest.raises(RunError, match=r"t\.json: not one of Clearhead's tokenizers"):
        Tokenizer.load(tmp_path / "t.json")


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_of_a_megabyte(kind: TokenizerKind) -> None:
    text = "a" * 2**19 + " " * 2**19
    ids = trained(kind).encode(text)
    assert ids == [UNK] if kind == "word" else trained(kind).decode(ids) == text
