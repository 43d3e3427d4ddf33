"""Experiments that train, in their quick setting: the direction of what they measure holds with a wide margin."""

from __future__ import annotations

import math

import pytest
import torch

from clearhead.experiments import (
    beam,
    causality,
    dates_task,
    dropout,
    feed_forward,
    heads,
    label_smoothing,
    normalization,
    positions,
    recurrence,
    residual,
    topics,
)
from clearhead.experiments.result import Effort
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.dropout import Dropout
from clearhead.parts.feed_forward import PositionwiseFeedForward
from clearhead.training.loss import smoothed_cross_entropy

QUICK = Effort.QUICK


@pytest.mark.parametrize("seed", [1, 2])
def test_sinusoids_do_not_carry_to_four_times_the_length(seed: int) -> None:
    found = positions.accuracy_by_length("sinusoidal", 8, [8, 32], QUICK, seed)
    assert found[8] > 0.9
    assert found[32] < found[8] - 0.2


@pytest.mark.parametrize("seed", [1, 2])
def test_held_out_batch_norm_needs_more_than_one_sentence(seed: int) -> None:
    layer, batch = (normalization.held_out_loss(kind, 1, QUICK, seed) for kind in ("layer", "batch"))
    assert layer < 0.8 * batch


@pytest.mark.parametrize("seed", [1, 2])
def test_a_deep_stack_without_residuals_learns_nothing(seed: int) -> None:
    without, pre = (residual.final_loss(kind, 12, True, QUICK, seed) for kind in ("norm only", "pre"))
    assert without > 0.9 * math.log(residual.LETTERS)
    assert pre < 0.5 * math.log(residual.LETTERS)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_leaky_decoder_has_a_loss_that_cannot_be(seed: int) -> None:  # case M7
    leaky = causality.train("chance", True, QUICK, seed)
    honest = causality.LENGTH * math.log(causality.LETTERS) / (causality.LENGTH + 1)
    assert leaky.loss < 0.5 * honest
    assert leaky.teacher_forced > 0.8
    assert leaky.free_running < 0.4


@pytest.mark.parametrize("seed", [1, 2])
def test_a_right_decoder_stays_at_chance_where_nothing_can_be_learned(seed: int) -> None:  # case M7
    right = causality.train("chance", False, QUICK, seed)
    assert right.loss > 0.95 * causality.LENGTH * math.log(causality.LETTERS) / (causality.LENGTH + 1)
    assert abs(right.teacher_forced - 1 / causality.LETTERS) < 0.1


@pytest.mark.parametrize("seed", [1, 2])
def test_attention_recalls_what_an_lstm_has_forgotten(seed: int) -> None:
    lstm, transformer = (recurrence.recall(kind, 32, QUICK, seed) for kind in ("LSTM", "Transformer"))
    assert transformer > lstm + 0.3


@pytest.mark.parametrize("seed", [1, 2])
def test_a_table_needs_the_feed_forward_network(seed: int) -> None:
    none, four = (feed_forward.table_loss(factor, QUICK, seed) for factor in (0, 4))
    assert four[0] < 0.5 * none[0]
    assert four[1] > none[1]


def test_positions_become_alike_without_residuals() -> None:
    alone, ffn, residual_alone, _ = (feed_forward.spread_by_depth(name, [8])[8] for name in feed_forward.STACKS)
    assert alone < 1e-3
    assert residual_alone > 100 * alone
    assert ffn < 0.1 * residual_alone


def test_the_feed_forward_network_is_its_formula() -> None:
    part = PositionwiseFeedForward(5, 11).double()
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    expected = (x @ part.w_1.weight.T + part.w_1.bias).clamp_min(0) @ part.w_2.weight.T + part.w_2.bias
    torch.testing.assert_close(part(x), expected)


@pytest.mark.parametrize("seed", [1, 2])
def test_two_relations_want_two_heads(seed: int) -> None:
    one, two = (heads.learn_both(count, QUICK, seed) for count in (1, 2))
    assert heads.last(two[0]) < 0.7 * heads.last(one[0])
    assert two[1] > one[1]


def test_heads_cost_the_same_and_are_their_formula() -> None:
    assert len({heads.cost(count)[:2] for count in (1, 2, 4, 8)}) == 1
    attention = MultiHeadAttention(14, 7).double()
    x = torch.randn(2, 5, 14, dtype=torch.float64)
    torch.testing.assert_close(heads.formula(attention, x), attention(x))


@pytest.mark.parametrize("seed", [1, 2])
def test_dropout_helps_where_data_are_few(seed: int) -> None:
    none, both = (dropout.train_and_test(name, QUICK, seed) for name in ("none", "both"))
    assert none[0] < both[0]
    assert both[1] < 0.9 * none[1]


def test_dropout_keeps_the_mean() -> None:
    kept = Dropout(0.25).train()(torch.full((1000,), 3.0))
    assert set(kept.tolist()) == {0.0, 4.0}
    for p in (0.1, 0.5):
        assert dropout.mean_kept(p) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("seed", [1, 2])
def test_post_norm_at_a_high_rate_wants_a_warmup(seed: int) -> None:
    pytest.importorskip("babel")
    without, with_warmup = (
        sum(dates_task.train_dates(QUICK, seed, updates=60, rate=4e-3, warmup=warmup)[1][-10:]) / 10
        for warmup in (0, 20)
    )
    assert with_warmup < without - 0.1


@pytest.mark.parametrize("seed", [1, 2])
def test_smoothing_makes_less_sure(seed: int) -> None:
    pytest.importorskip("babel")
    _, batch = dates_task.held_out_batch(QUICK)
    plain, smooth = (
        label_smoothing.measured(
            dates_task.train_dates(QUICK, seed, updates=100, rate=4e-3, warmup=30, smoothing=amount)[0], batch
        )
        for amount in (0.0, 0.3)
    )
    assert smooth.confidence < plain.confidence - 0.05
    assert smooth.gap < plain.gap - 0.05


def test_the_least_possible_loss_is_that_of_the_smoothed_targets() -> None:
    vocabulary, smoothing = 13, 0.1
    p = torch.full((vocabulary,), smoothing / (vocabulary - 2), dtype=torch.float64)
    p[0], p[5] = 1e-30, 1 - smoothing  # padding gets nothing
    loss = smoothed_cross_entropy(p.log()[None], torch.tensor([5]), smoothing)
    assert float(loss) == pytest.approx(label_smoothing.least_loss(smoothing, vocabulary), rel=1e-9)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_beam_finds_what_is_likelier(seed: int) -> None:
    pytest.importorskip("babel")
    model, _ = dates_task.train_dates(QUICK, seed, updates=60, rate=4e-3, warmup=20)
    dates, _ = dates_task.held_out_batch(QUICK)
    few = dates._replace(test=dates.test[:25])
    (greedy, _), (wide, _) = (beam.decode(model, few, size, 0.0) for size in (1, 4))
    assert sum(h.log_probability for h in wide) > sum(h.log_probability for h in greedy) + 0.5


@pytest.mark.slow
@pytest.mark.parametrize("topic", topics.all_topics(), ids=lambda topic: topic.name)
def test_every_topic_as_a_whole(topic: topics.Topic) -> None:
    if topic.name in ("warmup", "label-smoothing", "beam"):
        pytest.importorskip("babel")
    result = topic.run(QUICK)
    assert result.answer in ("holds", "holds in part")
    assert all(len(row) == len(table.columns) for table in result.tables for row in table.rows)
    assert result.verdict.endswith(".")
    assert all(result.chart.curves.values())
