"""Operations that a translation needs, and what `measure_speed` reports."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from clearhead.config import ModelConfig
from clearhead.decoding.translator import Translator
from clearhead.evaluation.speed import measure_speed, needed_flops, product_rates
from clearhead.models.transformer import Transformer

SOURCES = ["bad", "head", "cabbage", "fed", "a"]


def shape(**changes: int) -> ModelConfig:
    sizes = {"d_model": 22, "d_ff": 26, "n_heads": 2, "encoder_layers": 3, "decoder_layers": 2}
    return ModelConfig(**{"source_vocab": 29, "target_vocab": 31, "dropout": 0.0, **sizes, **changes})


def counted(model: Transformer, sentences: int, source: int, target: int) -> int:
    """What torch counts in the matrix products of the layers and the projection, attention's scores left out."""
    ids = torch.ones(sentences, source, dtype=torch.int64), torch.ones(sentences, target, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*ids)
    products = counter.get_flop_counts()["Global"]
    return sum(count for operator, count in products.items() if operator in (torch.ops.aten.mm, torch.ops.aten.addmm))


@pytest.mark.parametrize(("source", "target"), [(5, 7), (13, 3)])
def test_needed_operations_are_those_that_torch_counts(source: int, target: int) -> None:
    config = shape()
    scores = 4 * config.d_model * source * source * config.encoder_layers
    scores += 4 * config.d_model * (target * target / 2 + source * target) * config.decoder_layers
    needed = needed_flops(config, [source] * 2, [target] * 2)
    assert needed - 2 * scores == counted(Transformer(config).eval(), 2, source, target)


def test_a_beam_repeats_the_decoder_alone_and_training_takes_three_passes() -> None:
    config, no_encoder = shape(), shape(encoder_layers=0)
    lengths = [5, 11], [7, 3]
    encoder = needed_flops(config, *lengths) - needed_flops(no_encoder, *lengths)
    beams = [needed_flops(config, *lengths, beam_size=beam) for beam in (1, 2, 3)]
    # Beams add the same each: neither the encoder nor the source's keys and values (2 s m^2 each, by layer).
    assert beams[2] - beams[1] == pytest.approx(beams[1] - beams[0])
    keys_and_values = config.decoder_layers * 2 * 2 * sum(lengths[0]) * config.d_model**2
    assert beams[0] - (beams[1] - beams[0]) == pytest.approx(encoder + keys_and_values)
    assert needed_flops(config, *lengths, training=True) == 3 * beams[0]


def test_what_is_measured_belongs_together(half_trained, letters) -> None:
    translator = Translator(half_trained, *letters)
    options = {"beam_size": 2, "max_length_ratio": 2.0, "max_length_extra": 1}
    speed = measure_speed(translator, SOURCES, rounds=2, single=2, **options)
    outputs = [found[0].ids for found in translator.hypotheses(SOURCES, **options)]
    assert speed.sentences == len(SOURCES)
    assert speed.output_tokens == sum(len(ids) + 1 for ids in outputs)
    assert speed.sentences_per_second * speed.seconds == pytest.approx(speed.sentences)
    assert speed.tokens_per_second * speed.seconds == pytest.approx(speed.output_tokens)
    lengths = [len(text) + 1 for text in SOURCES], [len(ids) + 1 for ids in outputs]
    assert speed.needed_flops == needed_flops(half_trained.config, *lengths, beam_size=2)
    assert speed.share_of_peak * speed.peak_flops * speed.seconds == pytest.approx(speed.needed_flops)
    assert speed.latency > 0
    parameters = sum(p.numel() for p in half_trained.parameters())
    assert speed.peak_memory is None or speed.peak_memory > 4 * parameters


def test_every_round_has_its_rate() -> None:
    rates = product_rates(2)
    assert len(rates) == 2
    assert all(rate > 1e6 for rate in rates)
