"""GPT-2's names in `transformers`. Its matrices are stored as (in, out), and queries, keys and values in one."""

from __future__ import annotations

from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.interchange.attributes import Attributes
from clearhead.interchange.families.family import GELUS, THEIR_GELUS, Family
from clearhead.interchange.rows import Copy, Dropped, Row, Same, Split, Table, Tensors, flat, linear, norm
from clearhead.models.gpt import GPT2
from clearhead.text.control import Control


def read_config(their: Attributes, tensors: Tensors, control: Control) -> ModelConfig:
    """Our shape of a GPT-2."""
    their.require(
        scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, reorder_and_upcast_attn=False,
        add_cross_attention=False, tie_word_embeddings=True,
    )  # fmt: skip
    their.ignore(["summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "n_ctx",
                  "summary_first_dropout"])  # fmt: skip
    width, vocabulary = their.whole("n_embd"), their.whole("vocab_size")
    dropout = their.take("resid_pdrop", 0.1)
    their.require(embd_pdrop=dropout)
    return ModelConfig(**{
        **GPT2,
        "source_vocab": vocabulary,
        "target_vocab": vocabulary,
        "d_model": width,
        "d_ff": their.take("n_inner", 4 * width),
        "n_heads": their.whole("n_head"),
        "decoder_layers": their.whole("n_layer"),
        "max_positions": their.whole("n_positions"),
        "feed_forward": their.choose("activation_function", "gelu_new", GELUS),
        "norm_epsilon": their.take("layer_norm_epsilon", 1e-5),
        "dropout": dropout,
        "attention_dropout": their.take("attn_pdrop", 0.1),
        "feed_forward_dropout": 0.0,
    })  # fmt: skip


def write_config(config: ModelConfig, control: Control) -> dict[str, Any]:
    """The attributes of a GPT-2 of our shape."""
    wanted = {key: value for key, value in GPT2.items() if key not in ("max_positions", "feed_forward")}
    for name, value in {**wanted, "tied": "output", "norm": "layer", "biases": True, "kv_heads": None}.items():
        if getattr(config, name) != value:
            raise ConfigError(f"GPT-2 has {name} = {value!r}, but this model {getattr(config, name)!r}")
    if config.feed_forward not in THEIR_GELUS:
        raise ConfigError(f"GPT-2 has no feed_forward = {config.feed_forward!r}")
    return {
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.target_vocab,
        "n_positions": config.max_positions,
        "n_embd": config.d_model,
        "n_inner": config.d_ff,
        "n_layer": config.decoder_layers,
        "n_head": config.n_heads,
        "activation_function": THEIR_GELUS[config.feed_forward],
        "layer_norm_epsilon": config.norm_epsilon,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout_rate,
        "tie_word_embeddings": True,
    }


def table(config: ModelConfig, control: Control) -> Table:
    """Their names and ours."""
    return Table(
        [
            Same("transformer.wte.weight", "embedding.weight"),
            Same("transformer.wpe.weight", "positions.table"),
            *flat(layer(number) for number in range(config.decoder_layers)),
            *norm("transformer.ln_f", "decoder.norm"),
        ],
        [
            Copy("lm_head.weight", of="transformer.wte.weight"),
            Dropped(r"transformer\.h\.\d+\.attn\.(bias|masked_bias)"),
        ],
    )


def layer(number: int) -> list[Row]:
    """One layer."""
    theirs, ours = f"transformer.h.{number}", f"decoder.layers.{number}"
    joined = [f"{ours}.self_attention.{w}" for w in ("w_q", "w_k", "w_v")]
    return [
        *norm(f"{theirs}.ln_1", f"{ours}.add_and_norm_1.norm"),
        Split(f"{theirs}.attn.c_attn.weight", tuple(f"{name}.weight" for name in joined), transposed=True),
        Split(f"{theirs}.attn.c_attn.bias", tuple(f"{name}.bias" for name in joined)),
        *linear(f"{theirs}.attn.c_proj", f"{ours}.self_attention.w_o", transposed=True),
        *norm(f"{theirs}.ln_2", f"{ours}.add_and_norm_2.norm"),
        *linear(f"{theirs}.mlp.c_fc", f"{ours}.feed_forward.w_1", transposed=True),
        *linear(f"{theirs}.mlp.c_proj", f"{ours}.feed_forward.w_2", transposed=True),
    ]


FAMILY = Family("gpt2", read_config, write_config, table, base_prefix="transformer.", base_marker="wte.weight")
