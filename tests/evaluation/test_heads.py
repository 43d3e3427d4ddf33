"""Heads over a data set: statistics of every pair, and what the model is worth without some."""

from __future__ import annotations

import copy

import pytest
import torch

from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.translator import Translator
from clearhead.errors import ConfigError
from clearhead.evaluation import evaluate_outputs
from clearhead.evaluation.heads import ablate_heads, encoded_batches, measure_heads
from clearhead.evaluation.reference_sets import from_pairs
from clearhead.inspection.heads import Head, all_heads

PAIRS = [(line, [line.upper(), line.upper() * 2]) for line in ("badge", "cab", "headache", "a", "fed", "abcdefgh")]


@pytest.fixture
def translator(half_trained, letters) -> Translator:
    # Switching heads off writes into the weights: not into those that all tests share.
    options = DecodingOptions(beam_size=1, max_length_ratio=1.2, max_length_extra=1)
    return Translator(copy.deepcopy(half_trained), *letters, options)


@pytest.fixture(scope="module")
def data():
    return from_pairs("letters", PAIRS, merge=False)


def test_every_pair_is_measured_once_whatever_the_batches(translator, data, monkeypatch):
    batches = list(encoded_batches(translator, data))
    sides = [
        [tokenizer.decode(ids) for batch in batches for ids in getattr(batch, side).tolist()]
        for tokenizer, side in ((translator.source_tokenizer, "source"), (translator.target_tokenizer, "labels"))
    ]
    assert sorted(zip(*sides, strict=True)) == sorted((source, references[0]) for source, references in PAIRS)
    together = measure_heads(translator, data)
    monkeypatch.setattr("clearhead.evaluation.heads.SENTENCES_AT_A_TIME", 2)
    apart = measure_heads(translator, data)
    assert [one.head for one in together] == all_heads(translator.model)
    for one, other in zip(together, apart, strict=True):
        assert one.entropy == pytest.approx(other.entropy, rel=1e-5)
        assert one.distance == pytest.approx(other.distance, rel=1e-5)
        assert one.on_padding == other.on_padding == 0


def test_dropout_is_off_while_heads_are_measured(translator, data):
    expected = measure_heads(translator, data)
    for module in translator.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    translator.model.train()
    assert measure_heads(translator, data) == expected
    assert translator.model.training


def test_the_loss_and_the_score_without_heads(translator, data):
    groups = [(), (Head("cross", 0, 1),), (Head("cross", 0, 0), Head("decoder", 0, 1))]
    counted = []
    found = ablate_heads(translator, data, groups, metric="exact_match", on_progress=counted.append)
    assert counted == [1, 2, 3]
    assert [one.heads for one in found] == groups
    for one in found:
        other = copy.deepcopy(translator)
        with torch.no_grad():
            for kind, _, head in one.heads:
                layer = other.model.decoder.layers[0]
                attention = layer.cross_attention if kind == "cross" else layer.self_attention
                attention.w_o.weight[:, 12 * head : 12 * (head + 1)] = 0
        pairs = [(source, reference) for source, references in PAIRS for reference in references]
        scores = other.score([source for source, _ in pairs], [reference for _, reference in pairs])
        expected = -sum(score.log_probability for score in scores) / sum(score.tokens for score in scores)
        assert one.loss == pytest.approx(expected, rel=1e-6)
        outputs = other.translate([source for source, _ in PAIRS])
        assert one.score == evaluate_outputs(outputs, data.references, metrics=["exact_match"]).exact_match
    assert len({round(one.loss, 4) for one in found}) == 3


def test_without_a_metric_nothing_is_decoded(translator, data, monkeypatch):
    monkeypatch.setattr(Translator, "hypotheses", None)
    [whole] = ablate_heads(translator, data, [()])
    assert whole.score is None


def test_an_unknown_metric(translator, data):
    before = {name: parameter.clone() for name, parameter in translator.model.named_parameters()}
    with pytest.raises(ConfigError, match="no metric 'blue'"):
        ablate_heads(translator, data, [(Head("cross", 0, 0),)], metric="blue")
    assert all(torch.equal(parameter, before[name]) for name, parameter in translator.model.named_parameters())
