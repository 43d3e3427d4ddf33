"""Marian's tokenizers beside those of transformers, on SentencePiece models trained here."""

import json
import warnings

import pytest

from clearhead.text.control import Control
from clearhead.text.marian import MarianTokenizer, vocabulary_order

SOURCES = ["The cat sat on the mat.", "A dog runs through the snow.", "Where is the dog? It is there, on the mat!"]
TARGETS = ["Die Katze saß auf der Matte.", "Ein Hund läuft durch den Schnee.", "Wo ist der Hund? Er ist dort!"]
TEXTS = [
    *SOURCES, *TARGETS, "", "  two  spaces ", "The qat — 你好", "</s> <pad> <unk>", ">>de<< The cat.",
    ">>xx<< The cat.", "ﬁne №5", "THE CAT", ">> no << language", "a\tb\nc",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(marian_tokenizers):
    return marian_tokenizers(SOURCES, TARGETS, [">>de<<"])


@pytest.fixture(scope="module")
def order(folder):
    vocabulary = json.loads((folder / "vocab.json").read_text())
    control = Control(padding=vocabulary["<pad>"], start=vocabulary["<pad>"], end=(0,), unknown=1)
    return vocabulary_order(control, len(vocabulary))


@pytest.fixture(scope="module")
def theirs(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers", reason="the reference is the transformers library")
        return transformers.MarianTokenizer(
            str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json")
        )


def test_ids_are_those_of_transformers(folder, order, theirs):
    for side in ("source", "target"):
        own = MarianTokenizer.load(folder / f"{side}.spm", folder / "vocab.json", order)
        for text in TEXTS:
            expected = (theirs(text) if side == "source" else theirs(text_target=text))["input_ids"]
            found = [order[id] for id in own.encode(text)]
            if "<pad>" in text or (
                text.startswith(">>") and ">>de<<" not in text
            ):  # no control tokens to us, nor a language that there isn't
                assert [*found, 0] != expected
                continue
            assert [*found, 0] == expected, text


def test_texts_come_back(folder, order):
    own = MarianTokenizer.load(folder / "source.spm", folder / "vocab.json", order)
    for text in SOURCES:
        assert own.decode([1, *own.encode(text), 2, 0]) == text
    assert own.decode([3]) == "�"
    assert own.tokens([0, 1, 2, 3]) == ["<pad>", "<s>", "</s>", "<unk>"]


def test_no_text_has_control_tokens(folder, order):  # case V2
    own = MarianTokenizer.load(folder / "source.spm", folder / "vocab.json", order)
    for text in TEXTS:
        assert not {0, 1, 2} & set(own.encode(text))


def test_the_order_begins_with_our_four():
    control = Control(padding=5, start=5, end=(0,), unknown=1)
    assert vocabulary_order(control, 6) == [5, 5, 0, 1, 2, 3, 4]
    own_start = Control(padding=5, start=3, end=(0,), unknown=1)
    assert vocabulary_order(own_start, 6) == [5, 3, 0, 1, 2, 4]


@pytest.mark.filterwarnings("ignore")  # those of transformers are not ours to mend
def test_a_folder_translates_as_it_does_elsewhere(folder, theirs, tmp_path, capfd):
    """Random weights, so gibberish, but the same gibberish: text in, text out."""
    import torch
    import transformers

    from clearhead.cli.app import main
    from clearhead.run_folder import RunFolder

    size = len(json.loads((folder / "vocab.json").read_text()))
    config = transformers.MarianConfig(
        vocab_size=size, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, scale_embedding=True,
        activation_function="swish", pad_token_id=size - 1, decoder_start_token_id=size - 1, eos_token_id=0,
        forced_eos_token_id=0, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.normal_(std=0.4)
    model.save_pretrained(tmp_path / "model")
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / "model" / name).write_bytes((folder / name).read_bytes())
    for arguments in (
        ["import", tmp_path / "model", "--to", tmp_path / "run"],
        ["translate", tmp_path / "run", *SOURCES, "--beam-size", 1, "--max-length-ratio", 0, "--max-length-extra", 12],
    ):
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        assert not caught.value.code
    printed = capfd.readouterr().out.split("\n")[:-1]
    assert RunFolder(tmp_path / "run").read_imported().family == "marian"
    for text, found in zip(SOURCES, printed, strict=True):
        ids = model.generate(
            **theirs(text, return_tensors="pt"), num_beams=1, do_sample=False, max_length=14,
            bad_words_ids=[[size - 1], [1]],
        )  # fmt: skip
        assert found == theirs.decode(ids[0], skip_special_tokens=True)
