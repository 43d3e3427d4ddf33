"""Peculiarities of published models that are no faults: none of them raises an alarm."""

from __future__ import annotations

import pytest
import torch

from clearhead.doctor import examine
from clearhead.doctor.hugging_face import config_patient

transformers = pytest.importorskip("transformers", reason="it is about the transformers library's models")


@pytest.mark.parametrize(
    ("config_class", "sizes", "longest"),
    [
        ("RobertaConfig", {"hidden_size": 16, "num_attention_heads": 2, "max_position_embeddings": 34}, 32),
        ("BertConfig", {"hidden_size": 16, "num_attention_heads": 2, "max_position_embeddings": 34}, 34),
    ],
)
def test_positions_that_begin_behind_the_padding_are_fewer(config_class, sizes, longest):
    """RoBERTa's table has two rows more than the tokens it takes."""
    config = getattr(transformers, config_class)(vocab_size=34, num_hidden_layers=1, intermediate_size=16, **sizes)
    patient = config_patient(config, name=config_class)
    assert patient.max_length == longest
    assert examine(patient, checks=["positions"])["positions"].verdict == "fine"
    model = patient.build().eval()
    with pytest.raises((IndexError, RuntimeError)):
        patient.logits(model, torch.full((1, longest + 1), 7))


def test_capped_logits_are_no_cross_entropy_to_read():
    """Gemma 2's loss is of `tanh` of its logits: nothing can be said about it, and nothing is."""
    config = transformers.Gemma2Config(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        intermediate_size=32, query_pre_attn_scalar=16,
    )  # fmt: skip
    report = examine(config_patient(config, name="Gemma 2"), checks=["labels", "loss", "positions"])
    assert [report[check].verdict for check in ("positions", "labels", "loss")] == [
        "fine",
        "not measured",
        "not measured",
    ]


def test_a_mask_of_the_least_number_holds_in_the_precision_it_was_made_for():
    """BLOOM fills in the least number and takes the softmax in float32: examined in float64 that would be -inf."""
    config = transformers.BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=2)
    report = examine(config_patient(config, name="BLOOM"), checks=["empty-rows", "padding", "positions"])
    assert [finding.verdict for finding in report.findings] == ["fine"] * 3
