"""Files of llama2.c ("version 0"): seven numbers, then float32, all layers' tensors of one kind behind the other."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import RunError
from clearhead.interchange.model import ForeignModel
from clearhead.interchange.rows import Row, Same, Table, Tensors, Turned, flat
from clearhead.interchange.sentence_pieces import Piece, byte_fallback_tokenizer
from clearhead.models.llama import LLAMA
from clearhead.text.control import Control

HEADER = struct.Struct("<7i")
CONTROL = Control(start=1, end=(2, 1), unknown=0)
"""The ids that all of its vocabularies have. The start token ends a text too: training put texts in a row with it."""


def read_llama2c(path: Path, tokenizer: Path | None = None) -> ForeignModel:
    """The model of a file, mapped into memory, with the vocabulary of a file `tok….bin` or `tokenizer.bin` beside it.

    Raises `RunError` when the file hasn't the length that its numbers say.
    """
    config = read_header(path)
    table = make_table(config)
    weights = table.read(read_tensors(path, config), origin=str(path))
    pieces = read_pieces(tokenizer or find_tokenizer(path), config.target_vocab)
    return ForeignModel("llama", config, weights, CONTROL, tokenizer_json=byte_fallback_tokenizer(pieces, CONTROL))


def read_header(path: Path) -> ModelConfig:
    """The shape. A vocabulary with a minus sign has a projection of its own."""
    with path.open("rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size:
        raise RunError(f"{path}: too short for a file of llama2.c")
    width, inner, layers, heads, kv_heads, vocabulary, positions = HEADER.unpack(header)
    if min(width, inner, layers, heads, kv_heads, abs(vocabulary), positions) < 1 or max(width, layers) > 1 << 20:
        raise RunError(f"{path}: no file of llama2.c: it begins with {HEADER.unpack(header)}")
    return ModelConfig(**{
        **LLAMA,
        "source_vocab": abs(vocabulary),
        "target_vocab": abs(vocabulary),
        "d_model": width,
        "d_ff": inner,
        "n_heads": heads,
        "kv_heads": kv_heads,
        "decoder_layers": layers,
        "max_positions": positions,
        "norm_epsilon": 1e-5,
        "tied": "output" if vocabulary > 0 else "none",
    })  # fmt: skip


def read_tensors(path: Path, config: ModelConfig) -> Tensors:
    """Every tensor under its name in llama2.c, those of the layers with the layer's number behind it."""
    stored = torch.from_numpy(np.memmap(path, dtype="<f4", mode="c", offset=HEADER.size))
    tensors: Tensors = {}
    start = 0
    for name, shape in layout(config):
        size = int(np.prod(shape))
        if start + size > len(stored):
            raise RunError(f"{path}: ends within {name}; is the file whole?")
        tensor: Tensor = stored[start : start + size].view(shape)
        if name in PER_LAYER:
            tensors |= {f"{name}.{number}": part for number, part in enumerate(tensor)}
        elif not name.startswith("freq_cis"):  # the angles, which we compute
            tensors[name] = tensor
        start += size
    if start != len(stored):
        raise RunError(f"{path}: {len(stored) - start} numbers are left over behind the last tensor")
    return tensors


PER_LAYER = ("rms_att_weight", "wq", "wk", "wv", "wo", "rms_ffn_weight", "w1", "w2", "w3")


def layout(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes in the order of the file."""
    layers, width, inner = config.decoder_layers, config.d_model, config.d_ff
    head = width // config.n_heads
    narrow = head * config.key_value_heads
    yield "token_embedding_table", (config.target_vocab, width)
    yield "rms_att_weight", (layers, width)
    yield "wq", (layers, width, width)
    yield "wk", (layers, narrow, width)
    yield "wv", (layers, narrow, width)
    yield "wo", (layers, width, width)
    yield "rms_ffn_weight", (layers, width)
    yield "w1", (layers, inner, width)
    yield "w2", (layers, width, inner)
    yield "w3", (layers, inner, width)
    yield "rms_final_weight", (width,)
    yield "freq_cis_real", (config.max_positions or 0, head // 2)
    yield "freq_cis_imag", (config.max_positions or 0, head // 2)
    if config.tied == "none":
        yield "wcls", (config.target_vocab, width)


def make_table(config: ModelConfig) -> Table:
    """Their names and ours."""

    def layer(number: int) -> list[Row]:
        ours = f"decoder.layers.{number}"
        return [
            Same(f"rms_att_weight.{number}", f"{ours}.add_and_norm_1.norm.gamma"),
            Turned(f"wq.{number}", f"{ours}.self_attention.w_q.weight", config.n_heads),
            Turned(f"wk.{number}", f"{ours}.self_attention.w_k.weight", config.key_value_heads),
            Same(f"wv.{number}", f"{ours}.self_attention.w_v.weight"),
            Same(f"wo.{number}", f"{ours}.self_attention.w_o.weight"),
            Same(f"rms_ffn_weight.{number}", f"{ours}.add_and_norm_2.norm.gamma"),
            *(Same(f"w{i}.{number}", f"{ours}.feed_forward.w_{i}.weight") for i in (1, 2, 3)),
        ]

    rows = [
        Same("token_embedding_table", "embedding.weight"),
        *flat(layer(number) for number in range(config.decoder_layers)),
        Same("rms_final_weight", "decoder.norm.gamma"),
    ]
    return Table([*rows, Same("wcls", "projection.weight")] if config.tied == "none" else rows)


def find_tokenizer(path: Path) -> Path:
    """The one vocabulary beside a model. Raises `RunError` when there is none, or several."""
    found = sorted({*path.parent.glob("tok*.bin")} - {path})
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise RunError(f"{path}: which vocabulary? Beside it are: {names}; name one with --tokenizer")
    return found[0]


def read_pieces(path: Path, count: int) -> list[Piece]:
    """The pieces of a vocabulary: the longest length, then score, length and bytes of each."""
    data = path.read_bytes()
    pieces, place = [], 4
    try:
        for _ in range(count):
            score, length = struct.unpack_from("<fi", data, place)
            text = data[place + 8 : place + 8 + length].decode("utf-8")
            pieces.append(Piece(text.strip("\n") if text in ("\n<s>\n", "\n</s>\n") else text.replace(" ", "▁"), score))
            place += 8 + length
    except (struct.error, UnicodeDecodeError) as error:
        raise RunError(f"{path}: no vocabulary of {count} pieces: {error}") from None
    if place != len(data):
        raise RunError(f"{path}: holds more than the {count} pieces of the model; it is another model's vocabulary")
    return pieces
