"""GGUF files (llama.cpp) of LLaMA's family, read with the `gguf` package; quantised tensors become float32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, RunError
from clearhead.interchange.attributes import Attributes
from clearhead.interchange.model import ForeignModel
from clearhead.interchange.rows import Row, Same, Table, Turned, flat
from clearhead.interchange.sentence_pieces import Piece, byte_fallback_tokenizer, byte_level_tokenizer
from clearhead.models.llama import LLAMA
from clearhead.text.control import Control

CONTROL_TYPE = 3
"""The type of a control token in `tokenizer.ggml.token_type`."""


def read_gguf(path: Path) -> ForeignModel:
    """The model of a file.

    Raises `ConfigError` when the gguf package is missing or the file says something that isn't understood, `RunError`
    for a file that can't be read or whose tensors don't fit.
    """
    try:
        import gguf
    except ImportError:
        raise ConfigError(f'{path}: to read it, pip install "clearhead[hf]" (the gguf package)') from None
    try:
        reader = gguf.GGUFReader(path)
        values = {name: field.contents() for name, field in reader.fields.items()}
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise RunError(f"{path}: not a readable GGUF file ({error})") from None
    tensors = Dequantised(reader.tensors)
    config = read_config(values, tied="output.weight" not in tensors, origin=str(path))
    weights = make_table(config).read(tensors, origin=str(path))
    control = read_control(values)
    tokenizer = read_tokenizer(values, control, origin=str(path))
    return ForeignModel("llama", config, weights, control, tokenizer_json=tokenizer)


class Dequantised(Mapping[str, Tensor]):
    """A mapped file's tensors by name, each made float32 when it is asked for: no two copies of all at a time."""

    def __init__(self, stored: Iterable[Any]) -> None:
        self.stored = {tensor.name: tensor for tensor in stored}

    def __getitem__(self, name: str) -> Tensor:
        import gguf

        tensor = self.stored[name]
        found = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return torch.from_numpy(found if found.flags.writeable else found.copy())

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


def read_config(values: dict[str, Any], *, tied: bool, origin: str) -> ModelConfig:
    """The shape, from the values whose names begin with the architecture's."""
    kind = values.get("general.architecture")
    if kind != "llama":
        raise ConfigError(f"{origin}: general.architecture = {kind!r} is not known here; known is llama")
    own = {name.removeprefix("llama."): value for name, value in values.items() if name.startswith("llama.")}
    their = Attributes(own, origin=origin)
    width, heads = their.whole("embedding_length"), their.whole("attention.head_count")
    their.require(**{"rope.dimension_count": width // heads, "attention.key_length": width // heads,
                     "attention.value_length": width // heads, "rope.scaling.type": "none"})  # fmt: skip
    vocabulary = len(values.get("tokenizer.ggml.tokens", []))
    their.require(vocab_size=vocabulary)
    config = ModelConfig(**{
        **LLAMA,
        "source_vocab": vocabulary,
        "target_vocab": vocabulary,
        "d_model": width,
        "d_ff": their.whole("feed_forward_length"),
        "n_heads": heads,
        "kv_heads": their.take("attention.head_count_kv", heads),
        "decoder_layers": their.whole("block_count"),
        "max_positions": their.whole("context_length"),
        "rotary_base": float(their.take("rope.freq_base", 10_000.0)),
        "norm_epsilon": their.take("attention.layer_norm_rms_epsilon"),
        "tied": "output" if tied else "none",
    })  # fmt: skip
    their.require_all_read()
    return config


def make_table(config: ModelConfig) -> Table:
    """Their names and ours; the rotary pairs are neighbours there."""

    def layer(number: int) -> list[Row]:
        theirs, ours = f"blk.{number}", f"decoder.layers.{number}"
        return [
            Same(f"{theirs}.attn_norm.weight", f"{ours}.add_and_norm_1.norm.gamma"),
            Turned(f"{theirs}.attn_q.weight", f"{ours}.self_attention.w_q.weight", config.n_heads),
            Turned(f"{theirs}.attn_k.weight", f"{ours}.self_attention.w_k.weight", config.key_value_heads),
            Same(f"{theirs}.attn_v.weight", f"{ours}.self_attention.w_v.weight"),
            Same(f"{theirs}.attn_output.weight", f"{ours}.self_attention.w_o.weight"),
            Same(f"{theirs}.ffn_norm.weight", f"{ours}.add_and_norm_2.norm.gamma"),
            Same(f"{theirs}.ffn_gate.weight", f"{ours}.feed_forward.w_1.weight"),
            Same(f"{theirs}.ffn_down.weight", f"{ours}.feed_forward.w_2.weight"),
            Same(f"{theirs}.ffn_up.weight", f"{ours}.feed_forward.w_3.weight"),
        ]

    rows = [
        Same("token_embd.weight", "embedding.weight"),
        *flat(layer(number) for number in range(config.decoder_layers)),
        Same("output_norm.weight", "decoder.norm.gamma"),
    ]
    return Table([*rows, Same("output.weight", "projection.weight")] if config.tied == "none" else rows)


def read_control(values: dict[str, Any]) -> Control:
    """The control tokens."""
    ends = [values.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    return Control(
        start=values.get("tokenizer.ggml.bos_token_id"),
        end=tuple(dict.fromkeys(id for id in ends if id is not None)),
        padding=values.get("tokenizer.ggml.padding_token_id"),
        unknown=values.get("tokenizer.ggml.unknown_token_id"),
    )


def read_tokenizer(values: dict[str, Any], control: Control, *, origin: str) -> str:
    """The tokenizer, in the form of the tokenizers library."""
    tokens = values.get("tokenizer.ggml.tokens", [])
    match values.get("tokenizer.ggml.model"):
        case "gpt2":
            types = values.get("tokenizer.ggml.token_type", [])
            return byte_level_tokenizer(
                tokens,
                values.get("tokenizer.ggml.merges", []),
                kind=values.get("tokenizer.ggml.pre", "default"),
                control_names=[token for token, type in zip(tokens, types, strict=True) if type == CONTROL_TYPE],
                start=control.start if values.get("tokenizer.ggml.add_bos_token") else None,
            )
        case "llama":
            scores = values.get("tokenizer.ggml.scores", [])
            return byte_fallback_tokenizer([Piece(*pair) for pair in zip(tokens, scores, strict=True)], control)
        case kind:
            raise ConfigError(f"{origin}: a tokenizer of the kind {kind!r} is not known here; known are gpt2 and llama")
