"""How many target tokens a second are trained on: Clearhead, a plain loop around torch.nn.Transformer, and Marian.

All train the same shape on the same batches of 4,096 tokens: forward, loss with label smoothing 0.1, backward, Adam;
dropout 0.1 everywhere, the attention weights included; float32. Padding doesn't count as trained on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from benchmarks.data import MAX_LENGTH, VOCABULARY, text_files
from benchmarks.harness import OURS, PRESETS, THREADS, Row, run_script, take_turns, throughput_rows
from benchmarks.machine import peak_flops
from benchmarks.peers import TorchTransformer, marian
from clearhead.config import PRESETS as SHAPES
from clearhead.config import ModelConfig
from clearhead.control_tokens import PAD
from clearhead.evaluation.speed import needed_flops
from clearhead.models.transformer import Transformer
from clearhead.recipe import TrainingSection
from clearhead.text.batches import Batch, make_batch, plan_batches
from clearhead.text.corpus import Corpus
from clearhead.text.readers import CorpusFiles
from clearhead.text.tokenizers import train_tokenizer
from clearhead.training.optimizer import make_optimizer
from clearhead.training.step import compute_gradient

BATCH_TOKENS = 4096
LABEL_SMOOTHING = 0.1
RATE = 1e-4
BATCHES = {"tiny": 6, "base": 1}
"""Batches in a round: enough for the clock, few enough for patience."""
ROUNDS = {"tiny": 5, "base": 5}

CPU = torch.device("cpu")

Step = Callable[[Batch], None]


def shape(preset: str, vocabulary: int) -> ModelConfig:
    """The preset with one vocabulary and one embedding matrix for both sides, as the paper has it."""
    sizes = {"source_vocab": vocabulary, "target_vocab": vocabulary}
    return ModelConfig.from_dict({**SHAPES[preset], **sizes, "tied": "all"})


@dataclass(frozen=True)
class Setting:
    """Where and how the steps are computed."""

    device: torch.device = CPU
    precision: Literal["float32", "bfloat16"] = "float32"
    """`bfloat16`: matrix products in it, by autocast."""
    compiled: bool = False


def clearhead_step(config: ModelConfig, setting: Setting) -> Step:
    """An update as `clearhead train` makes it, with its check for infinite gradients and its clipping."""
    options = TrainingSection(batch_tokens=BATCH_TOKENS, label_smoothing=LABEL_SMOOTHING, precision=setting.precision)
    model = Transformer(config).to(setting.device).train()
    if setting.compiled:  # as `training.compile` does
        model.encoder.compile(dynamic=True)
        model.decoder.compile(dynamic=True)
    optimizer = make_optimizer(model, options)
    for group in optimizer.param_groups:
        group["lr"] = RATE

    def step(batch: Batch) -> None:
        compute_gradient(model, [batch], options, setting.device)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def plain_step(model: nn.Module, logits_of: Callable[[Batch], Tensor], setting: Setting) -> Step:
    """An update as a tutorial writes it."""
    model.to(setting.device).train()
    if setting.compiled:
        model.compile()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9)
    loss_function = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=LABEL_SMOOTHING)

    def step(batch: Batch) -> None:
        batch = batch.to(setting.device)
        optimizer.zero_grad()
        with torch.autocast(setting.device.type, torch.bfloat16, enabled=setting.precision == "bfloat16"):
            loss = loss_function(logits_of(batch).flatten(0, 1), batch.labels.flatten())
        loss.backward()
        optimizer.step()

    return step


def torch_step(config: ModelConfig, setting: Setting) -> Step:
    """The plain loop around `torch.nn.Transformer`."""
    model = TorchTransformer(config)
    return plain_step(model, lambda batch: model(batch.source, batch.decoder_input), setting)


def marian_step(config: ModelConfig, setting: Setting) -> Step:
    """The plain loop around transformers' MarianMTModel."""
    model = marian(config)

    def logits_of(batch: Batch) -> Tensor:
        attended = (batch.source != PAD).long()
        return model(
            input_ids=batch.source, attention_mask=attended, decoder_input_ids=batch.decoder_input, use_cache=False
        ).logits

    return plain_step(model, logits_of, setting)


SYSTEMS = {OURS: clearhead_step, "torch.nn.Transformer": torch_step, "transformers (Marian)": marian_step}


def measure_shape(preset: str, corpus: Corpus, vocabulary: int, *, quick: bool) -> list[Row]:
    """The rows of one shape."""
    config = shape(preset, vocabulary)
    plan = plan_batches(corpus, batch_tokens=BATCH_TOKENS, seed=1, epoch=0)
    indices = [plan[i] for i in range(1 if quick else BATCHES[preset])]
    batches = [make_batch(corpus, chosen) for chosen in indices]
    trained_on = sum(batch.target_tokens for batch in batches)
    flops = sum(
        needed_flops(config, corpus.source_lengths[chosen], corpus.target_lengths[chosen], training=True)
        for chosen in indices
    )

    def all_batches(step: Step) -> Callable[[], None]:
        def run() -> None:
            for batch in batches:
                step(batch)

        return run

    steps = {name: make_step(config, Setting()) for name, make_step in SYSTEMS.items()}
    for step in steps.values():  # the first update allocates the optimizer's state
        step(batches[0])
    seconds = take_turns(
        {name: all_batches(step) for name, step in steps.items()}, rounds=1 if quick else ROUNDS[preset]
    )
    return throughput_rows(
        f"training {preset}", seconds, amount=trained_on, unit="target tokens/s", share_of_peak=flops / peak_flops()
    )


def measure(quick: bool) -> list[Row]:
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    files = text_files()
    print(f"  {files.origin}, joint BPE {VOCABULARY:,}")
    lines = [line for path in (files.source, files.target) for line in path.read_text("utf-8").split("\n")]
    tokenizer = train_tokenizer("bpe", lines, vocab_size=VOCABULARY)
    pairs = CorpusFiles(source=files.source, target=files.target)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus.build(Path(folder) / "corpus", [pairs], tokenizer, tokenizer, max_length=MAX_LENGTH)
        return [
            row
            for preset in PRESETS[: 1 if quick else None]
            for row in measure_shape(preset, corpus, VOCABULARY, quick=quick)
        ]


if __name__ == "__main__":
    run_script(measure)
