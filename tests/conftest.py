"""What the tests of decoding and of the commands share: a small model that knows a little, and its letters."""

from __future__ import annotations

import io
import json
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from clearhead.config import ModelConfig
from clearhead.models.transformer import Transformer
from clearhead.text.batches import collate
from clearhead.text.tokenizers import CONTROL_COUNT, Tokenizer, train_tokenizer


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_means_something() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C; tests that send it want Python's own answer."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def letters() -> tuple[Tokenizer, Tokenizer]:
    """Sources are made of the letters a to h, targets of A to H; the same letter has the same id."""
    return train_tokenizer("char", ["abcdefgh"]), train_tokenizer("char", ["ABCDEFGH"])


@pytest.fixture(scope="session")
def half_trained(letters) -> Transformer:
    """A model that has half learned to copy, doubling letters at will.

    A moment of training makes outputs of many lengths, that depend on the source, with real choices at every step
    and an end that is sometimes never found: weights drawn at random repeat one letter for ever. Tests must leave it as
    it is.
    """
    vocabulary = letters[0].vocab_size
    torch.manual_seed(1)
    shape = {"d_model": 24, "d_ff": 48, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "norm_position": "pre"}
    model = Transformer(ModelConfig(source_vocab=vocabulary, target_vocab=vocabulary, dropout=0.0, **shape))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    generator = random.Random(1)
    for _ in range(80):
        sources = [generator.choices(range(CONTROL_COUNT, vocabulary), k=generator.randint(1, 9)) for _ in range(32)]
        targets = [[id for id in source for _ in range(generator.choice((1, 1, 2)))] for source in sources]
        batch = collate(list(zip(sources, targets, strict=True)))
        logits = model(batch.source, batch.decoder_input, rows=batch.rows)
        loss = F.cross_entropy(logits, batch.labels.flatten()[batch.rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.requires_grad_(False).eval()


@pytest.fixture(scope="session")
def marian_tokenizers(tmp_path_factory) -> Callable[..., Path]:
    """`marian_tokenizers(sources, targets)`: a folder with the tokenizers of a Marian model, made for these texts."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="needs the sentencepiece package")

    def make(sources: Sequence[str], targets: Sequence[str], languages: Sequence[str] = ()) -> Path:
        path = tmp_path_factory.mktemp("opus-mt")
        pieces = ["</s>", "<unk>", *languages]
        for side, texts in (("source", sources), ("target", targets)):
            model = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter([*texts] * 10), model_writer=model, vocab_size=60, minloglevel=3,
                hard_vocab_limit=False,
            )  # fmt: skip
            (path / f"{side}.spm").write_bytes(model.getvalue())
            loaded = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
            pieces += [loaded.id_to_piece(id) for id in range(loaded.get_piece_size())]
        vocabulary = {piece: id for id, piece in enumerate(dict.fromkeys(p for p in pieces if p != "<s>"))}
        vocabulary["<pad>"] = len(vocabulary)
        (path / "vocab.json").write_text(json.dumps(vocabulary))
        return path

    return make
