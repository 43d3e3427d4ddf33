"""A run folder of a GPT, a LLaMA or a BERT as a patient: trained here or imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.doctor.patient import Patient, TextSide
from clearhead.doctor.run_patient import SMALL_VOCABULARY, rate
from clearhead.models.bert import BERT
from clearhead.models.gpt import GPT
from clearhead.models.making import make_model, map_model
from clearhead.recipe import TrainingSection
from clearhead.run_folder import RunFolder
from clearhead.text.loading import load_language_tokenizer
from clearhead.text.packing import Block, PackedBatch
from clearhead.text.pretrained import PretrainedTokenizer
from clearhead.training.loss import smoothed_cross_entropy, training_loss
from clearhead.training.next_token import next_token_batch
from clearhead.training.optimizer import make_optimizer
from clearhead.training.predictions import predict_next, seen_in
from clearhead.training.step import compute_gradient


def one_sided_patient(folder: RunFolder) -> Patient:
    """All that a run folder of a model with one side says. Raises `RunError` for files that can't be read."""
    config = folder.read_config()
    options = folder.read_recipe().training if folder.recipe.exists() else TrainingSection(label_smoothing=0.0)
    tokenizer = load_language_tokenizer(folder)
    more: dict[str, Any] = {"name": str(folder), "text_sides": {"tokenizer": text_side(tokenizer)}}
    if folder.model.exists():
        more["trained"] = map_model(config, folder.model)
    control = tokenizer.control
    pad = spare_id(config, tokenizer) if control.padding is None else control.padding
    start = [control.start, *control.end, pad]
    return make_patient(
        config, options, pad=pad,
        bos=next(id for id in start if id is not None), eos=next(iter(control.end), pad),
        other_control=frozenset(tokenizer.special_ids()), **more,
    )  # fmt: skip


def make_patient(config: ModelConfig, options: TrainingSection, *, pad: int, **more: Any) -> Patient:
    """A model of a shape, with the loss, the gradient and the cache that training and decoding use."""
    common: dict[str, Any] = {
        "build": lambda: make_model(config), "vocabulary": config.target_vocab, "pad": pad,
        "max_length": config.max_positions if config.positions == "learned" else None, **more,
    }  # fmt: skip
    if config.architecture == "encoder":
        return Patient(kind="encoder", call=lambda model, ids: guesses(model, ids, pad), **common)
    return Patient(
        kind="decoder",
        tied=config.tied != "none",
        loss=lambda model, ids, _: loss(model, ids, pad),
        gradient=lambda model, batches: gradient(model, [ids for ids, _ in batches], options, pad),
        optimizer=lambda model: make_optimizer(model, options),
        rate=lambda update: rate(update, options, config.d_model),
        warmup=options.warmup,
        total_updates=options.total_updates(1) if options.epochs is None else None,
        cached=cached,
        **common,
    )


def text_side(tokenizer: PretrainedTokenizer) -> TextSide:
    """The tokenizer, as it reads what stands between the control tokens."""
    unknown = tokenizer.control.unknown
    return TextSide(
        encode=tokenizer.encode_bare, decode=tokenizer.decode,
        control=frozenset(tokenizer.special_ids() - {unknown}), unknown=unknown,
    )  # fmt: skip


def spare_id(config: ModelConfig, tokenizer: PretrainedTokenizer) -> int:
    """An id that means nothing else, for a model without padding."""
    return max(set(range(config.target_vocab)) - tokenizer.special_ids())


def guesses(model: nn.Module, ids: Tensor, pad: int) -> Tensor:
    """Logits of the token at each place, padding hidden."""
    assert isinstance(model, BERT)
    return model.masked_token_logits(model(ids, ids != pad))


def batch_of(ids: Tensor, pad: int) -> PackedBatch:
    """Padded rows as training has them: each a document of its own."""
    rows = [np.array([token for token in row if token != pad] or [pad], dtype=np.int64) for row in ids.tolist()]
    blocks = [
        Block(row, np.append(row[1:], -1), np.zeros(len(row), dtype=np.int64), np.arange(len(row))) for row in rows
    ]
    return next_token_batch(blocks, list(range(len(blocks))))


def loss(model: nn.Module, ids: Tensor, pad: int) -> Tensor:
    """What training minimises: the next token of every row."""
    batch = batch_of(ids, pad)
    logits = model(batch.ids, batch.rows, *seen_in(batch))
    if logits.size(1) <= SMALL_VOCABULARY:  # the fused loss projects states: the identity makes logits of logits
        identity = torch.eye(logits.size(1), dtype=logits.dtype)
        return training_loss(logits, identity, batch.labels, smoothing=0.0, divisor=batch.target_tokens)[0]
    return smoothed_cross_entropy(logits, batch.labels, 0.0).mean()


def gradient(model: nn.Module, batches: Sequence[Tensor], options: TrainingSection, pad: int) -> None:
    """What an update of the training takes, before clipping."""
    unclipped = options.model_copy(update={"clip_norm": 0.0, "precision": "float32", "label_smoothing": 0.0})
    compute_gradient(model, [batch_of(ids, pad) for ids in batches], unclipped, torch.device("cpu"), predict_next)


def cached(model: nn.Module, ids: Tensor, _: Tensor | None = None) -> Tensor:
    """Logits token by token, as generation makes them."""
    assert isinstance(model, GPT)
    cache = model.start_cache(ids.size(0))
    return torch.cat([model.step(ids[:, t : t + 1], cache) for t in range(ids.size(1))], 1)
