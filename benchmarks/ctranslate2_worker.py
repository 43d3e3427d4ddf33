"""CTranslate2 in a process of its own: a request comes in as a line of JSON, and its answer goes out as one.

Runs in an environment of its own, which has neither torch nor Clearhead, so it imports nothing of either. Tokens are
the ids of our vocabulary, written as text.

    {"do": "build", "arrays": "weights.npz", "folder": "model", "heads": 8, "layers": [6, 6], …}
    {"do": "open", "folder": "model", "compute_type": "int8", "inter_threads": 2, "intra_threads": 1}
    {"do": "translate", "translator": 0, "sources": [[5, 6, 2]], "beam_size": 1, …}
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

Arrays = Mapping[str, np.ndarray]

translators: list[Any] = []


def build(
    *,
    arrays: str,
    folder: str,
    heads: int,
    layers: tuple[int, int],
    epsilon: float,
    control: Mapping[str, int],
) -> None:
    """Write a CTranslate2 model of our weights: the paper's post-norm Transformer, all embeddings one matrix."""
    weights = np.load(arrays)
    spec = transformer_spec.TransformerSpec.from_config(
        tuple(layers), heads, pre_norm=False, activation=common_spec.Activation.RELU
    )
    embedding = weights["target_embedding.weight"]
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = weights["positions"]
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    for number, layer in enumerate(spec.encoder.layer):
        fill_layer(layer, weights, f"encoder.layers.{number}")
    for number, layer in enumerate(spec.decoder.layer):
        fill_layer(layer, weights, f"decoder.layers.{number}")
    tokens = [str(id) for id in range(len(embedding))]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.bos_token = spec.config.decoder_start_token = str(control["bos"])
    spec.config.eos_token = str(control["eos"])
    spec.config.unk_token = str(control["unk"])
    spec.config.layer_norm_epsilon = epsilon
    spec.validate()
    Path(folder).mkdir()
    spec.save(folder)


def fill_layer(layer: Any, weights: Arrays, name: str) -> None:
    """One layer's sublayers, each with the norm behind it."""
    sublayers = [(layer.self_attention, "self_attention")]
    if hasattr(layer, "attention"):
        sublayers.append((layer.attention, "cross_attention"))
    for spec, part in sublayers:
        query, key, value, output = (
            linear(weights, f"{name}.{part}.{matrix}") for matrix in ("w_q", "w_k", "w_v", "w_o")
        )
        products = [[query, key, value]] if part == "self_attention" else [[query], [key, value]]
        for target, side_by_side in zip(spec.linear, [*products, [output]], strict=True):
            target.weight = np.concatenate([weight for weight, _ in side_by_side])
            target.bias = np.concatenate([bias for _, bias in side_by_side])
    layer.ffn.linear_0.weight, layer.ffn.linear_0.bias = linear(weights, f"{name}.feed_forward.w_1")
    layer.ffn.linear_1.weight, layer.ffn.linear_1.bias = linear(weights, f"{name}.feed_forward.w_2")
    normed = [*(spec for spec, _ in sublayers), layer.ffn]
    for number, spec in enumerate(normed, start=1):
        spec.layer_norm.gamma = weights[f"{name}.add_and_norm_{number}.norm.gamma"]
        spec.layer_norm.beta = weights[f"{name}.add_and_norm_{number}.norm.beta"]


def linear(weights: Arrays, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Matrix and bias."""
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def open_model(*, folder: str, compute_type: str, inter_threads: int, intra_threads: int) -> int:
    """Load the model; says by which number to call it."""
    translators.append(
        ctranslate2.Translator(
            folder, compute_type=compute_type, inter_threads=inter_threads, intra_threads=intra_threads
        )
    )
    return len(translators) - 1


def translate(
    *, translator: int, sources: list[list[int]], beam_size: int, batch_size: int, length_penalty: float, longest: int
) -> dict[str, Any]:
    """The outputs, and the seconds that they took: the way through the pipe isn't CTranslate2's."""
    tokens = [[str(id) for id in ids] for ids in sources]
    start = time.perf_counter()
    found = translators[translator].translate_batch(
        tokens,
        max_batch_size=batch_size,
        batch_type="examples",
        beam_size=beam_size,
        length_penalty=length_penalty,
        max_decoding_length=longest,
        max_input_length=0,
        disable_unk=True,
    )
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "outputs": [[int(token) for token in one.hypotheses[0]] for one in found]}


def main() -> None:
    """Answer until the pipe is closed."""
    actions: dict[str, Callable[..., Any]] = {"build": build, "open": open_model, "translate": translate}
    for line in sys.stdin:
        request = json.loads(line)
        answer = actions[request.pop("do")](**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
