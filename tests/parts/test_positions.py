"""Sinusoidal positions against the paper's formula, entry by entry."""

import copy
import math

import pytest
import torch
from torch import nn

from clearhead.parts.positions import PositionalEncoding, sinusoids


def by_formula(position: int, feature: int, d_model: int) -> float:
    """PE(pos, 2i) is a sine, PE(pos, 2i + 1) the cosine of the same angle."""
    angle = position / 10_000 ** (2 * (feature // 2) / d_model)
    return math.cos(angle) if feature % 2 else math.sin(angle)


# case S1
@pytest.mark.parametrize("d_model", [1, 2, 3, 4, 5, 7, 17, 512])
def test_every_entry_is_the_papers(d_model):
    positions = [0, 1, 2, 3, 100, 1023, 4999]
    table = sinusoids(5000, d_model)
    assert table.shape == (5000, d_model)
    expected = [[by_formula(p, i, d_model) for i in range(d_model)] for p in positions]
    torch.testing.assert_close(table[positions], torch.tensor(expected), rtol=0, atol=1e-7)


@pytest.mark.parametrize("offset", [1, 5, 71])
@pytest.mark.parametrize("d_model", [2, 6, 64])
def test_a_shift_is_a_linear_map(d_model, offset):
    """PE(pos + k) = R(k) PE(pos), with one matrix for every pos (section 3.5): a rotation of each sine and cosine."""
    table = sinusoids(300, d_model).double()
    rotation = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        angle = offset / 10_000 ** (i / d_model)
        rotation[i : i + 2, i : i + 2] = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
        )
    torch.testing.assert_close(table[:-offset] @ rotation.T, table[offset:], rtol=0, atol=1e-6)


def test_the_table_is_added_from_the_start_position_on():
    module, x = PositionalEncoding(5), torch.randn(2, 3, 5)
    expected = torch.tensor([[by_formula(p, i, 5) for i in range(5)] for p in range(10)])
    torch.testing.assert_close(module(x), x + expected[:3])
    torch.testing.assert_close(module(x, start=7), x + expected[7:])


# case S3
@pytest.mark.parametrize("length", [6, 7, 8, 14, 15, 100])  # the table holds 7
def test_the_table_grows(length):
    module, x = PositionalEncoding(5, length=7), torch.zeros(1, length, 5)
    assert torch.equal(module(x)[0], sinusoids(length, 5))
    assert module.table.size(0) >= length
    assert torch.equal(module(x[:, :1], start=length)[0], sinusoids(length + 1, 5)[-1:])


def test_a_table_that_grew_keeps_its_kind():
    module = PositionalEncoding(5, length=3).double()
    module(torch.zeros(1, 20, 5, dtype=torch.float64))
    assert module.table.dtype == torch.float64
    assert "table" in dict(module.named_buffers())


def test_a_table_that_grew_while_decoding_serves_training_and_copies():
    module = PositionalEncoding(5, length=3)
    with torch.inference_mode():
        module(torch.zeros(1, 20, 5))
    x = torch.zeros(1, 20, 5, requires_grad=True)
    copy.deepcopy(module).double()(module(x).double()).sum().backward()
    assert torch.equal(x.grad, torch.ones(1, 20, 5))


def test_the_table_moves_with_the_module_but_is_not_saved():
    module = PositionalEncoding(5)
    assert module.state_dict() == {}
    assert list(module.parameters()) == []
    assert module.to(torch.float64).table.dtype == torch.float64
    assert module.to("meta").table.device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_sum_has_the_kind_of_the_embeddings(dtype):
    assert PositionalEncoding(5)(torch.zeros(1, 2, 5, dtype=dtype)).dtype == dtype


def test_dropout_falls_on_the_sum():
    torch.manual_seed(0)
    module, x = PositionalEncoding(101, dropout=0.25), torch.full((3, 11, 101), 7.0)
    clean, dropped = PositionalEncoding(101)(x), module(x)
    kept = dropped != 0
    assert abs(kept.float().mean().item() - 0.75) < 0.03
    torch.testing.assert_close(dropped[kept], clean[kept] / 0.75)
    assert torch.equal(module.eval()(x), clean)


def test_without_positions_attention_sees_a_bag_of_tokens():
    """What positions are for: swapping two tokens swaps two outputs of an encoder without them, and no more."""
    from clearhead.config import ModelConfig
    from clearhead.parts.layers import Encoder

    torch.manual_seed(0)
    config = ModelConfig(source_vocab=1, target_vocab=1, d_model=6, d_ff=7, n_heads=2, encoder_layers=2, dropout=0.0)
    encoder: nn.Module = Encoder(config).double()
    x, swap = torch.randn(1, 4, 6, dtype=torch.float64), [2, 1, 0, 3]
    torch.testing.assert_close(encoder(x[:, swap]), encoder(x)[:, swap], rtol=0, atol=1e-12)
    positions = PositionalEncoding(6)
    assert not torch.allclose(encoder(positions(x[:, swap])), encoder(positions(x))[:, swap], atol=1e-3)
