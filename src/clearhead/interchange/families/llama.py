"""LLaMA's names in `transformers`, whose rotary pairs are ours: feature `i` with feature `i + d/2`."""

from __future__ import annotations

from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.interchange.attributes import Attributes
from clearhead.interchange.families.family import Family
from clearhead.interchange.rows import Copy, Dropped, Row, Same, Table, Tensors, flat, linear
from clearhead.models.llama import LLAMA
from clearhead.text.control import Control

SCALING_NAMES = {
    "factor": "factor",
    "low_frequency_factor": "low_freq_factor",
    "high_frequency_factor": "high_freq_factor",
    "original_positions": "original_max_position_embeddings",
}
"""Our numbers of a rotary scaling, and theirs."""


def read_config(their: Attributes, tensors: Tensors, control: Control) -> ModelConfig:
    """Our shape of a LLaMA."""
    heads, width, vocabulary = their.whole("num_attention_heads"), their.whole("hidden_size"), their.whole("vocab_size")
    # `pretraining_tp` > 1 splits the matrix products, and not what they compute.
    their.ignore(["pretraining_tp", "rope_interleaved", "is_llama_config"])
    their.require(attention_bias=False, mlp_bias=False, hidden_act="silu", head_dim=width // heads)
    base, scaling = read_rotation(their)
    return ModelConfig(**{
        **LLAMA,
        "source_vocab": vocabulary,
        "target_vocab": vocabulary,
        "d_model": width,
        "d_ff": their.whole("intermediate_size"),
        "n_heads": heads,
        "kv_heads": their.take("num_key_value_heads", heads),
        "decoder_layers": their.whole("num_hidden_layers"),
        "max_positions": their.whole("max_position_embeddings"),
        "rotary_base": float(base),
        "rotary_scaling": scaling,
        "norm_epsilon": their.take("rms_norm_eps", 1e-6),
        "attention_dropout": their.take("attention_dropout", 0.0),
        "tied": "output" if their.take("tie_word_embeddings", False) else "none",
    })  # fmt: skip


def read_rotation(their: Attributes) -> tuple[float, dict[str, Any] | None]:
    """The base and the scaling, in the words of transformers 5 (`rope_parameters`) or of those before it."""
    parameters, older = their.take("rope_parameters", {}), their.take("rope_scaling")
    rotation = dict(parameters if older is None else older)
    base = their.take("rope_theta", rotation.pop("rope_theta", parameters.get("rope_theta", 10_000.0)))
    kinds = [rotation.pop(name, None) for name in ("rope_type", "type")]
    kind = next((name for name in kinds if name is not None), "default")
    if kind == "default" and not rotation:
        return base, None
    names = {theirs: ours for ours, theirs in SCALING_NAMES.items()}
    unknown = set(rotation) - set(names)
    if kind not in ("linear", "llama3") or unknown:
        raise ConfigError(
            f"{their.origin}: rotary positions of the kind {kind!r} with {rotation!r}: "
            "known are default, linear and llama3"
        )
    return base, {"kind": kind, **{names[name]: value for name, value in rotation.items()}}


def write_config(config: ModelConfig, control: Control) -> dict[str, Any]:
    """The attributes of a LLaMA of our shape."""
    wanted = {key: value for key, value in LLAMA.items() if key not in ("tied", "dropout", "norm_epsilon")}
    for name, value in wanted.items():
        if getattr(config, name) != value:
            raise ConfigError(f"LLaMA has {name} = {value!r}, but this model {getattr(config, name)!r}")
    rotation: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rotary_base}
    if config.rotary_scaling is not None:
        numbers = {SCALING_NAMES[name]: value for name, value in config.rotary_scaling.items() if name != "kind"}
        rotation = {**rotation, "rope_type": config.rotary_scaling["kind"], **numbers}
    return {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": config.target_vocab,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.key_value_heads,
        "num_hidden_layers": config.decoder_layers,
        "max_position_embeddings": config.max_positions,
        "rope_parameters": rotation,
        "rms_norm_eps": config.norm_epsilon,
        "attention_dropout": config.attention_dropout_rate,
        "hidden_act": "silu",
        "tie_word_embeddings": config.tied != "none",
    }


def table(config: ModelConfig, control: Control) -> Table:
    """Their names and ours."""
    rows: list[Row] = [
        Same("model.embed_tokens.weight", "embedding.weight"),
        *flat(layer(number) for number in range(config.decoder_layers)),
        Same("model.norm.weight", "decoder.norm.gamma"),
    ]
    others: list[Dropped | Copy] = [Dropped(r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")]
    if config.tied == "none":
        return Table([*rows, Same("lm_head.weight", "projection.weight")], others)
    return Table(rows, [*others, Copy("lm_head.weight", of="model.embed_tokens.weight")])


def layer(number: int) -> list[Row]:
    """One layer."""
    theirs, ours = f"model.layers.{number}", f"decoder.layers.{number}"
    matrices = {
        "self_attn.q_proj": "self_attention.w_q",
        "self_attn.k_proj": "self_attention.w_k",
        "self_attn.v_proj": "self_attention.w_v",
        "self_attn.o_proj": "self_attention.w_o",
        "mlp.gate_proj": "feed_forward.w_1",
        "mlp.down_proj": "feed_forward.w_2",
        "mlp.up_proj": "feed_forward.w_3",
    }
    return [
        Same(f"{theirs}.input_layernorm.weight", f"{ours}.add_and_norm_1.norm.gamma"),
        Same(f"{theirs}.post_attention_layernorm.weight", f"{ours}.add_and_norm_2.norm.gamma"),
        *flat(linear(f"{theirs}.{name}", f"{ours}.{own}", bias=False) for name, own in matrices.items()),
    ]


FAMILY = Family(
    "llama", read_config, write_config, table,
    base_prefix="model.", base_marker="embed_tokens.weight", reads_start=True,
)  # fmt: skip
