"""The loss against the definition, and the fast version against the formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.control_tokens import PAD
from clearhead.models.transformer import Transformer
from clearhead.text.batches import collate
from clearhead.training import loss as loss_module
from clearhead.training.loss import plain_loss, smoothed_cross_entropy, training_loss


def cross_entropy_by_definition(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """-sum(q log p) with the target distribution q written out entry by entry."""
    rows, vocabulary = logits.shape
    target = torch.zeros_like(logits)
    for row in range(rows):
        for token in range(vocabulary):
            if token == labels[row]:
                target[row, token] = 1 - smoothing
            elif token != PAD:
                target[row, token] = smoothing / (vocabulary - 2)
    return -(target * logits.log_softmax(-1)).sum(-1)


def fast_loss(logits: Tensor, labels: Tensor, *, smoothing: float, divisor: int) -> tuple[Tensor, Tensor]:
    """The fast loss of given logits: projected by the identity."""
    identity = torch.eye(logits.size(1), dtype=logits.dtype)
    return training_loss(logits, identity, labels, smoothing=smoothing, divisor=divisor)


@pytest.mark.parametrize("rows", [1, 13, 31])
def test_projection_and_loss_in_chunks_equal_them_one_after_the_other(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(loss_module.CHUNK_ELEMENTS, "cpu", 5 * 17)
    torch.manual_seed(rows)
    states = torch.randn(rows, 7, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(17, 7, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(1, 17, (rows,))
    expected = smoothed_cross_entropy(states @ weight.T, labels, 0.1).sum() / 29
    loss, _ = training_loss(states, weight, labels, smoothing=0.1, divisor=29)
    torch.testing.assert_close(loss, expected)
    for fast, plain in zip(
        torch.autograd.grad(loss, (states, weight)), torch.autograd.grad(expected, (states, weight)), strict=True
    ):
        torch.testing.assert_close(fast, plain)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_the_formula_is_the_cross_entropy_with_a_smoothed_target(smoothing: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(7, 11, dtype=torch.float64) * 3
    labels = torch.tensor([1, 2, 3, 10, 5, 5, 9])
    expected = cross_entropy_by_definition(logits, labels, smoothing)
    torch.testing.assert_close(smoothed_cross_entropy(logits, labels, smoothing), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 13, 31])
def test_the_fast_loss_equals_the_formula_in_float64(
    smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(loss_module.CHUNK_ELEMENTS, "cpu", 5 * 17)  # five rows a chunk, so 13 and 31 end on a part
    torch.manual_seed(rows)
    logits = (torch.randn(rows, 17, dtype=torch.float64) * 4).requires_grad_()
    labels = torch.randint(1, 17, (rows,))
    expected = smoothed_cross_entropy(logits, labels, smoothing).sum() / 29
    (expected_gradient,) = torch.autograd.grad(expected, logits)
    expected_plain = -logits.detach().log_softmax(-1)[range(rows), labels].sum() / 29

    leaf = logits.detach().clone().requires_grad_()
    loss, plain = fast_loss(leaf * 1.0, labels, smoothing=smoothing, divisor=29)
    (gradient,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(plain, expected_plain)
    torch.testing.assert_close(gradient, expected_gradient)
    assert not plain.requires_grad


def test_the_gradient_follows_what_is_done_to_the_loss() -> None:
    leaf = torch.randn(3, 9, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([4, 5, 6])
    (single,) = torch.autograd.grad(fast_loss(leaf * 1.0, labels, smoothing=0.1, divisor=3)[0], leaf)
    (triple,) = torch.autograd.grad(3 * fast_loss(leaf * 1.0, labels, smoothing=0.1, divisor=3)[0], leaf)
    torch.testing.assert_close(triple, 3 * single)


# case T6
def test_padding_gets_no_probability_mass() -> None:
    """The gradient is p - q: at padding it is p itself, so q is exactly 0 there."""
    logits = torch.randn(5, 13, dtype=torch.float64)
    p = logits.softmax(-1)
    leaf = logits.clone().requires_grad_()
    loss, _ = fast_loss(leaf * 1.0, torch.tensor([4, 5, 6, 7, 12]), smoothing=0.3, divisor=1)
    (gradient,) = torch.autograd.grad(loss, leaf)
    torch.testing.assert_close(gradient[:, PAD], p[:, PAD])


# case T6
def test_a_probability_of_zero_has_a_finite_loss_and_gradient() -> None:
    logits = torch.zeros(2, 8)
    logits[:, 5] = 1e4  # every other probability is 0 in float32
    leaf = logits.clone().requires_grad_()
    loss, plain = fast_loss(leaf * 1.0, torch.tensor([5, 6]), smoothing=0.1, divisor=2)
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert plain.item() == pytest.approx(1e4 / 2)
    assert loss.item() == pytest.approx(smoothed_cross_entropy(logits, torch.tensor([5, 6]), 0.1).mean().item())
    assert gradient.isfinite().all()


# case T6
def test_the_loss_does_not_depend_on_the_padding_of_the_batch() -> None:
    torch.manual_seed(1)
    model = Transformer(small_shape()).double().eval()
    pairs = [([5, 6], [7]), ([5, 6, 7, 8], [8, 9, 10])]
    batch = collate(pairs)
    wide = torch.nn.functional.pad(batch.labels, (0, 50)), torch.nn.functional.pad(batch.decoder_input, (0, 50))
    wide_source = torch.nn.functional.pad(batch.source, (0, 50))
    wide_rows = (wide[0].flatten() != PAD).nonzero().squeeze(1)
    for source, decoder_input, labels, rows in (
        (batch.source, batch.decoder_input, batch.labels, batch.rows),
        (wide_source, wide[1], wide[0], wide_rows),
    ):
        logits = model(source, decoder_input, rows=rows)
        loss, plain = fast_loss(logits, labels.flatten()[rows], smoothing=0.1, divisor=len(rows))
        found = (loss.item(), plain.item())
        if labels is batch.labels:
            expected = found
    assert found == pytest.approx(expected, rel=1e-9)


def test_bfloat16_logits_are_summed_in_float32() -> None:
    torch.manual_seed(2)
    logits = torch.randn(64, 501).bfloat16()
    labels = torch.randint(4, 501, (64,))
    expected = smoothed_cross_entropy(logits.double(), labels, 0.1).sum() / 64
    leaf = logits.clone().requires_grad_()
    loss, _ = fast_loss(leaf * 1.0, labels, smoothing=0.1, divisor=64)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert gradient.dtype == torch.bfloat16


# case T8
@pytest.mark.parametrize("d_model", [32, 128, 512])
@pytest.mark.parametrize("tied", ["none", "output", "all"])
def test_the_untrained_loss_is_about_the_logarithm_of_the_vocabulary(tied: str, d_model: int) -> None:
    torch.manual_seed(3)
    model = Transformer(small_shape(d_model=d_model, n_heads=4, tied=tied, source_vocab=1000, target_vocab=1000)).eval()
    pairs = [(torch.randint(4, 1000, (9,)).tolist(), torch.randint(4, 1000, (11,)).tolist()) for _ in range(8)]
    batch = collate(pairs)
    with torch.no_grad():
        logits = model(batch.source, batch.decoder_input, rows=batch.rows)
    loss = plain_loss(logits, batch.labels.flatten()[batch.rows]).item() / batch.target_tokens
    assert loss == pytest.approx(math.log(1000), abs=0.6)


def small_shape(**changes: object) -> ModelConfig:
    shape = {"source_vocab": 11, "target_vocab": 11, "d_model": 8, "d_ff": 8, "n_heads": 2}
    return ModelConfig.from_dict({**shape, "encoder_layers": 1, "decoder_layers": 1, **changes})
