"""Files of llama2.c: written here as its documentation says, and the published one."""

import os
import struct
from pathlib import Path

import pytest
import torch

from clearhead.decoding.loading import load_generator
from clearhead.errors import RunError
from clearhead.interchange.importing import import_model
from clearhead.interchange.llama2c import read_llama2c
from clearhead.models.making import make_model_of

DATA = Path(os.environ.get("CLEARHEAD_DATA", Path(__file__).parents[2] / ".." / "shared" / "data")) / "stories260K"
needs_stories = pytest.mark.skipif(not DATA.exists(), reason="the public data is not here (CLEARHEAD_DATA)")

DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 24, 17, 2, 6, 2, 11, 13
WIDTH = DIM // HEADS


def random_tensors(tied):
    random = torch.Generator().manual_seed(0)
    shapes = {
        "embedding": (VOCABULARY, DIM), "rms_att": (LAYERS, DIM), "wq": (LAYERS, DIM, DIM),
        "wk": (LAYERS, KV_HEADS * WIDTH, DIM), "wv": (LAYERS, KV_HEADS * WIDTH, DIM), "wo": (LAYERS, DIM, DIM),
        "rms_ffn": (LAYERS, DIM), "w1": (LAYERS, HIDDEN, DIM), "w2": (LAYERS, DIM, HIDDEN), "w3": (LAYERS, HIDDEN, DIM),
        "rms_final": (DIM,), "freq_real": (CONTEXT, WIDTH // 2), "freq_imag": (CONTEXT, WIDTH // 2),
    }  # fmt: skip
    if not tied:
        shapes["wcls"] = (VOCABULARY, DIM)
    return {name: 0.3 * torch.randn(shape, generator=random) for name, shape in shapes.items()}


def write(path, tensors, tied):
    vocabulary = VOCABULARY if tied else -VOCABULARY
    header = struct.pack("<7i", DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, vocabulary, CONTEXT)
    path.write_bytes(header + b"".join(tensor.numpy().astype("<f4").tobytes() for tensor in tensors.values()))
    pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(bytes([97 + i]) for i in range(VOCABULARY - 3))]
    entries = (struct.pack("<fi", -float(i), len(piece)) + piece for i, piece in enumerate(pieces))
    (path.parent / "tok.bin").write_bytes(struct.pack("<i", 7) + b"".join(entries))


def by_hand(tensors, ids):
    """run.c in a few lines: one position after the other, neighbours turned together."""
    keys = [[[] for _ in range(KV_HEADS)] for _ in range(LAYERS)]
    values = [[[] for _ in range(KV_HEADS)] for _ in range(LAYERS)]

    def rms(x, gain):
        return gain * x / (x.pow(2).mean() + 1e-5).sqrt()

    def turn(vector, position):
        out = vector.clone()
        for i in range(0, WIDTH, 2):
            angle = torch.tensor(position / 10_000 ** (i / WIDTH))
            out[i] = vector[i] * angle.cos() - vector[i + 1] * angle.sin()
            out[i + 1] = vector[i] * angle.sin() + vector[i + 1] * angle.cos()
        return out

    logits = []
    for position, id in enumerate(ids):
        x = tensors["embedding"][id]
        for layer in range(LAYERS):
            h = rms(x, tensors["rms_att"][layer])
            q, k, v = (tensors[name][layer] @ h for name in ("wq", "wk", "wv"))
            for head in range(KV_HEADS):
                keys[layer][head].append(turn(k[head * WIDTH : (head + 1) * WIDTH], position))
                values[layer][head].append(v[head * WIDTH : (head + 1) * WIDTH])
            found = []
            for head in range(HEADS):
                shared = head // (HEADS // KV_HEADS)
                query = turn(q[head * WIDTH : (head + 1) * WIDTH], position)
                weights = (torch.stack(keys[layer][shared]) @ query / WIDTH**0.5).softmax(0)
                found.append(weights @ torch.stack(values[layer][shared]))
            x = x + tensors["wo"][layer] @ torch.cat(found)
            h = rms(x, tensors["rms_ffn"][layer])
            gate = tensors["w1"][layer] @ h
            x = x + tensors["w2"][layer] @ (gate * gate.sigmoid() * (tensors["w3"][layer] @ h))
        output = tensors.get("wcls", tensors["embedding"])
        logits.append(output @ rms(x, tensors["rms_final"]))
    return torch.stack(logits)


@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
def test_a_file_gives_what_its_program_computes(tmp_path, tied):
    tensors = random_tensors(tied)
    write(tmp_path / "model.bin", tensors, tied)
    read = read_llama2c(tmp_path / "model.bin")
    model = make_model_of(read.config, read.weights, origin="file").eval()
    ids = [1, 5, 3, 9, 9, 4]
    torch.testing.assert_close(model(torch.tensor([ids]))[0], by_hand(tensors, ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:20], "too short"),
        (lambda data: data[:-4], "ends within"),
        (lambda data: data + bytes(8), "2 numbers are left over"),
        (lambda data: b"\xff" * 400, "no file of llama2.c"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path, change, words):
    path = tmp_path / "model.bin"
    write(path, random_tensors(tied=True), tied=True)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RunError, match=words):
        read_llama2c(path)


def test_the_vocabulary_is_asked_for_when_it_is_not_clear(tmp_path):
    path = tmp_path / "model.bin"
    write(path, random_tensors(tied=True), tied=True)
    (tmp_path / "tok2.bin").write_bytes(b"")
    with pytest.raises(RunError, match=r"tok\.bin, tok2\.bin; name one with --tokenizer"):
        read_llama2c(path)
    with pytest.raises(RunError, match="no vocabulary of 11 pieces"):
        read_llama2c(path, tmp_path / "tok2.bin")


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    run = import_model(DATA / "stories260K.bin", tmp_path_factory.mktemp("runs") / "stories")
    return load_generator(run.path, device="cpu")


@needs_stories
def test_the_published_model_tells_its_published_story(stories):
    text = stories.generate("", max_new_tokens=60)
    assert text.strip().startswith(
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
        "One day, she saw a big, red ball."
    )


@needs_stories
def test_texts_keep_their_spaces_and_what_looks_like_control_tokens(stories):
    for text in ["a  b ", "The <s> dog</s>", "héllo 你好 🐈\n\tx", "", " leading", "▁"]:
        ids = stories.tokenizer.encode(text)
        assert ids[0] == 1
        assert 1 not in ids[1:]
        assert 2 not in ids
        assert stories.tokenizer.decode(ids) == text.replace("▁", " ")
