"""A run folder as a patient: its model, its recipe's loss and schedule, its tokenizers, its data."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.control_tokens import BOS, EOS, PAD, UNK
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.search import search
from clearhead.decoding.translator import require_room
from clearhead.doctor.patient import Pairs, Patient, TextSide
from clearhead.errors import ClearheadError
from clearhead.models.transformer import Transformer, load_weights
from clearhead.recipe import Recipe, TrainingSection
from clearhead.run_folder import RunFolder
from clearhead.text.batches import collate
from clearhead.text.loading import load_tokenizers
from clearhead.training.data import split_pairs
from clearhead.training.loss import smoothed_cross_entropy, training_loss
from clearhead.training.optimizer import make_optimizer
from clearhead.training.schedules import learning_rate
from clearhead.training.step import compute_gradient

PAIRS_READ = 20_000
SMALL_VOCABULARY = 2_000


def run_patient(path: Path) -> Patient:
    """All that a run folder says. Raises `RunError` when it is no run folder or its weights don't fit."""
    folder = RunFolder(path).require()
    recipe, config = folder.read_recipe(), folder.read_config()
    trained = None
    if folder.model.exists():
        trained = Transformer(config)
        load_weights(trained, folder.model)
    data = readable_data(recipe)
    options = recipe.training
    return clearhead_patient(
        config, options, name=str(folder), trained=trained, data=data, text_sides=sides(folder, config, data)
    )


def clearhead_patient(config: ModelConfig, options: TrainingSection | None = None, **more: object) -> Patient:
    """Our model as a patient, with the loss, the accumulation, the schedule and the search that training and decoding
    use."""
    options = options or TrainingSection()
    total = options.total_updates(1) if options.epochs is None else None
    return Patient(
        build=lambda: Transformer(config),
        vocabulary=config.source_vocab,
        target_vocabulary=config.target_vocab,
        pad=PAD,
        bos=BOS,
        eos=EOS,
        other_control=frozenset({UNK}),
        tied=config.tied != "none",
        loss=lambda model, source, target: loss(model, source, target, options.label_smoothing),
        gradient=lambda model, batches: gradient(model, batches, options),
        optimizer=lambda model: make_optimizer(model, options),
        rate=lambda update: rate(update, options, config.d_model),
        warmup=options.warmup,
        total_updates=total,
        cached=cached,
        decode=decode,
        **{"name": "Clearhead's Transformer", **more},  # type: ignore[arg-type]
    )


def ids_of_pairs(source: Tensor, target: Tensor) -> list[tuple[list[int], list[int]]]:
    """Padded rows as `collate` takes them: without start, end and padding."""
    keep = lambda row: [token for token in row if token not in (PAD, BOS, EOS)]  # noqa: E731
    return [(keep(s), keep(t)) for s, t in zip(source.tolist(), target.tolist(), strict=True)]


def loss(model: nn.Module, source: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """What training minimises, with the decoder's input and the labels that `collate` makes."""
    batch = collate(ids_of_pairs(source, target))
    logits = model(batch.source, batch.decoder_input).flatten(0, 1)[batch.rows]
    labels = batch.labels.flatten()[batch.rows]
    if logits.size(1) <= SMALL_VOCABULARY:  # the fused loss projects states: the identity makes logits of logits
        identity = torch.eye(logits.size(1), dtype=logits.dtype)
        return training_loss(logits, identity, labels, smoothing=smoothing, divisor=len(labels))[0]
    return smoothed_cross_entropy(logits, labels, smoothing).mean()


def gradient(model: nn.Module, batches: Sequence[tuple[Tensor, Tensor]], options: TrainingSection) -> None:
    """What an update of the training takes, before clipping."""
    assert isinstance(model, Transformer)
    unclipped = options.model_copy(update={"clip_norm": 0.0, "precision": "float32"})
    compute_gradient(model, [collate(ids_of_pairs(*batch)) for batch in batches], unclipped, torch.device("cpu"))


def rate(update: int, options: TrainingSection, d_model: int) -> float:
    """The recipe's learning rate."""
    return learning_rate(
        options.schedule,
        update,
        peak=options.peak_rate,
        warmup=options.warmup,
        total=options.total_updates(1) or 10 * max(options.warmup, 1),
        floor=options.floor_rate,
        d_model=d_model,
    )


def cached(model: nn.Module, source: Tensor, ids: Tensor) -> Tensor:
    """Logits token by token, as the search makes them."""
    assert isinstance(model, Transformer)
    cache = model.start_cache(model.encode(source))
    return torch.cat([model.step(ids[:, t : t + 1], cache) for t in range(ids.size(1))], 1)


def decode(model: nn.Module, source: Tensor, beams: int) -> list[list[int]]:
    """The search of `clearhead translate`."""
    assert isinstance(model, Transformer)
    rows = [[token for token in row if token != PAD] for row in source.tolist()]
    return [found[0].ids for found in search(model, rows, DecodingOptions(beam_size=beams))]


def readable_data(recipe: Recipe) -> dict[str, Pairs]:
    """The first pairs of training and validation set; nothing of files that are no longer there."""
    try:
        split = split_pairs(recipe.data, recipe.run.seed, lambda _: None)
        read = {"train": split.train_pairs(), "valid": split.valid_pairs()}
        return {
            name: [(pair.source, pair.target) for pair in itertools.islice(pairs, PAIRS_READ)]
            for name, pairs in read.items()
        }
    except ClearheadError:
        return {}


def sides(folder: RunFolder, config: ModelConfig, data: dict[str, Pairs]) -> dict[str, TextSide]:
    """Both tokenizers, with validation texts to try them on."""
    found = {}
    pairs = data.get("valid", [])[:500]
    both, rooms = ("source", "target"), (config.source_vocab, config.target_vocab)
    files, tokenizers = folder.tokenizer_paths(), load_tokenizers(folder)
    for place, (name, tokenizer) in enumerate(zip(both, tokenizers, strict=True)):
        require_room(folder, files[place], tokenizer.vocab_size, rooms[place])
        found[name] = TextSide(
            encode=tokenizer.encode,
            decode=tokenizer.decode,
            control=frozenset({PAD, BOS, EOS}),
            unknown=UNK,
            texts=[pair[place] for pair in pairs],
        )
    return found
