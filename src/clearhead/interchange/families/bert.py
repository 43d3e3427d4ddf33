"""BERT's names in `transformers`."""

from __future__ import annotations

from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.interchange.attributes import Attributes
from clearhead.interchange.families.family import GELUS, THEIR_GELUS, Family
from clearhead.interchange.rows import Copy, Dropped, Row, Same, Table, Tensors, flat, linear, norm
from clearhead.models.bert import BERT_DIFFERENCES
from clearhead.text.control import Control


def read_config(their: Attributes, tensors: Tensors, control: Control) -> ModelConfig:
    """Our shape of a BERT; which heads it has is told by its weights."""
    their.require(
        is_decoder=False, add_cross_attention=False, position_embedding_type="absolute", tie_word_embeddings=True
    )
    pooler_of_old = ("fc_size", "num_attention_heads", "num_fc_layers", "size_per_head", "type")  # nobody reads them
    their.ignore(["directionality", "chunk_size_feed_forward", *(f"pooler_{name}" for name in pooler_of_old)])
    vocabulary = their.whole("vocab_size")
    masked, pooler = "cls.predictions.bias" in tensors, "bert.pooler.dense.weight" in tensors
    return ModelConfig(**{
        **BERT_DIFFERENCES,
        "source_vocab": vocabulary,
        "target_vocab": vocabulary,
        "d_model": their.whole("hidden_size"),
        "d_ff": their.whole("intermediate_size"),
        "n_heads": their.whole("num_attention_heads"),
        "encoder_layers": their.whole("num_hidden_layers"),
        "max_positions": their.whole("max_position_embeddings"),
        "segments": their.whole("type_vocab_size"),
        "feed_forward": their.choose("hidden_act", "gelu", GELUS),
        "norm_epsilon": their.take("layer_norm_eps", 1e-12),
        "dropout": their.take("hidden_dropout_prob", 0.1),
        "attention_dropout": their.take("attention_probs_dropout_prob", 0.1),
        "feed_forward_dropout": 0.0,
        "heads": {(True, True): "both", (True, False): "masked_token", (False, True): "pooler"}.get(
            (masked, pooler), "none"
        ),
    })  # fmt: skip


def write_config(config: ModelConfig, control: Control) -> dict[str, Any]:
    """The attributes of a BERT of our shape."""
    free = ("max_positions", "feed_forward", "segments", "norm_epsilon")
    wanted = {key: value for key, value in BERT_DIFFERENCES.items() if key not in free}
    for name, value in {**wanted, "norm_position": "post", "norm": "layer", "tied": "output"}.items():
        if getattr(config, name) != value:
            raise ConfigError(f"BERT has {name} = {value!r}, but this model {getattr(config, name)!r}")
    if config.feed_forward not in THEIR_GELUS:
        raise ConfigError(f"BERT has no feed_forward = {config.feed_forward!r}")
    classes = {
        "both": "BertForPreTraining",
        "masked_token": "BertForMaskedLM",
        "pooler": "BertModel",
        "none": "BertModel",
    }
    return {
        "architectures": [classes[config.heads]],
        "vocab_size": config.source_vocab,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_attention_heads": config.n_heads,
        "num_hidden_layers": config.encoder_layers,
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.segments,
        "hidden_act": THEIR_GELUS[config.feed_forward],
        "layer_norm_eps": config.norm_epsilon,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout_rate,
    }


def table(config: ModelConfig, control: Control) -> Table:
    """Their names and ours."""
    rows = [
        Same("bert.embeddings.word_embeddings.weight", "embedding.weight"),
        Same("bert.embeddings.token_type_embeddings.weight", "segments.weight"),
        Same("bert.embeddings.position_embeddings.weight", "positions.table"),
        *norm("bert.embeddings.LayerNorm", "norm"),
        *flat(layer(number) for number in range(config.encoder_layers)),
    ]
    if config.heads in ("masked_token", "both"):
        rows += linear("cls.predictions.transform.dense", "head.transform")
        rows += norm("cls.predictions.transform.LayerNorm", "head.norm")
        rows += [Same("cls.predictions.bias", "head.projection.bias")]
    if config.heads in ("pooler", "both"):
        rows += linear("bert.pooler.dense", "pooler")
    return Table(
        rows,
        [
            Copy("cls.predictions.decoder.weight", of="bert.embeddings.word_embeddings.weight"),
            Copy("cls.predictions.decoder.bias", of="cls.predictions.bias"),
            Dropped(r"bert\.embeddings\.position_ids"),
            Dropped(r"cls\.seq_relationship\.(weight|bias)"),  # whether a sentence follows another: nobody asks
        ],
    )


def layer(number: int) -> list[Row]:
    """One layer."""
    theirs, ours = f"bert.encoder.layer.{number}", f"encoder.layers.{number}"
    return [
        *linear(f"{theirs}.attention.self.query", f"{ours}.self_attention.w_q"),
        *linear(f"{theirs}.attention.self.key", f"{ours}.self_attention.w_k"),
        *linear(f"{theirs}.attention.self.value", f"{ours}.self_attention.w_v"),
        *linear(f"{theirs}.attention.output.dense", f"{ours}.self_attention.w_o"),
        *norm(f"{theirs}.attention.output.LayerNorm", f"{ours}.add_and_norm_1.norm"),
        *linear(f"{theirs}.intermediate.dense", f"{ours}.feed_forward.w_1"),
        *linear(f"{theirs}.output.dense", f"{ours}.feed_forward.w_2"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}.add_and_norm_2.norm"),
    ]


FAMILY = Family(
    "bert", read_config, write_config, table, base_prefix="bert.", base_marker="embeddings.word_embeddings.weight"
)
