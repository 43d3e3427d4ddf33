"""The functions for people's own tests pass on what is right and fail, in words, on what is not."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearhead.doctor import (
    Patient,
    assert_batch_invariant,
    assert_cache_exact,
    assert_causal,
    assert_finite_on_empty_rows,
    assert_healthy,
    assert_learns,
    assert_masks_right,
    assert_order_matters,
    assert_padding_invariant,
    assert_repeatable,
    assert_scaled,
    assert_tied,
    examine,
)
from clearhead.doctor.mistakes import masks, structure, textbook, training
from clearhead.errors import ConfigError


class Decoder(nn.Module):
    """Somebody's own decoder-only model, of one layer; called with ids alone."""

    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.causal = causal
        self.embedding = nn.Embedding(29, 12)
        self.positions = nn.Embedding(64, 12)
        self.qkv, self.out = nn.Linear(12, 36), nn.Linear(12, 29)

    def forward(self, ids):
        x = self.embedding(ids) + self.positions(torch.arange(ids.size(1)))
        query, key, value = self.qkv(x).chunk(3, -1)
        found = F.scaled_dot_product_attention(query[:, None], key[:, None], value[:, None], is_causal=self.causal)
        return self.out(x + found.squeeze(1))


def test_a_module_alone_is_enough():
    assert_causal(Decoder())
    assert_batch_invariant(Decoder())
    assert_repeatable(Decoder())
    assert_scaled(Decoder())
    assert_order_matters(Decoder())
    assert_padding_invariant(Decoder())


def test_a_leak_is_told_with_its_line():
    with pytest.raises(AssertionError) as failure:
        assert_causal(Decoder(causal=False))
    assert "causality: changing a token moves earlier logits" in str(failure.value)
    assert "is_causal=self.causal" in str(failure.value)


def test_an_encoder_may_look_both_ways_but_says_that_causality_was_not_tested():
    with pytest.raises(AssertionError, match="meant to look both ways"):
        assert_causal(Decoder(causal=False), kind="encoder")
    assert_order_matters(Decoder(causal=False), kind="encoder")


@pytest.mark.parametrize(
    ("check", "make"),
    [
        (assert_causal, masks.no_causal_mask),
        (assert_padding_invariant, masks.no_padding_mask_in_cross_attention),
        (assert_batch_invariant, structure.batch_normalization),
        (assert_repeatable, structure.dropout_in_evaluation),
        (assert_finite_on_empty_rows, masks.minus_infinity_everywhere),
        (assert_masks_right, masks.mask_added_as_numbers),
        (assert_scaled, masks.scaled_twice),
        (assert_order_matters, structure.no_positions),
        (assert_cache_exact, training.cached_positions_at_zero),
        (assert_learns, training.labels_not_shifted),
    ],
)
def test_each_fails_on_its_mistake_and_passes_without(check, make):
    with pytest.raises(AssertionError, match="likely: "):
        check(make())
    check(textbook.patient())


def test_tied():
    assert_tied(textbook.Textbook)
    with pytest.raises(AssertionError, match="two parameters over one memory"):
        assert_tied(structure.tied_by_a_second_parameter().build)
    with pytest.raises(AssertionError, match="no matrix is shared"):
        assert_tied(Decoder)


def test_assert_healthy_returns_the_report():
    report = assert_healthy(textbook.patient(), training=False)
    assert report["scores"].verdict == "fine"


def test_a_layout_with_positions_first_needs_only_an_adapter():
    class PositionsFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.out = nn.Embedding(31, 16), nn.Linear(16, 31)
            layer = nn.TransformerEncoderLayer(16, 2, 32)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, ids, mask):
            position = torch.arange(len(ids))[:, None, None] / 10
            return self.out(self.layers(self.embedding(ids) + torch.sin(position * torch.arange(1, 17)), mask=mask))

    def call(model, ids):
        later = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).triu(1)
        return model(ids.T, later).transpose(0, 1)

    assert_healthy(
        Patient(build=PositionsFirst, kind="decoder", vocabulary=31, call=call),
        "causality", "batch", "positions", "scores", "masks",
    )  # fmt: skip


def test_what_cannot_be_called_is_said_before_any_check():
    with pytest.raises(ConfigError, match=r"shape \(2, 5, 12\)"):
        assert_causal(nn.Embedding(29, 12), kind="decoder")
    with pytest.raises(ConfigError, match=r"not a torch\.nn\.Module"):
        examine(lambda: 5)
    with pytest.raises(ConfigError, match=r"can't be called: .*Say how"):
        assert_causal(Decoder(), kind="encoder-decoder")
    with pytest.raises(ConfigError, match="no check is called 'causalty'"):
        examine(Decoder(), checks=["causalty"])


def test_large_first_weights_are_measured_in_nats():
    """Tied N(0, 1) embeddings of width 64 start near d_model / 2 nats above, by the variance of their products."""
    report = examine(structure.large_tied_embeddings(), checks=["initial-loss"])
    loss = float(report["initial-loss"].measured.split()[2].rstrip(","))
    assert loss > math.log(textbook.VOCABULARY) + 2
