"""Token embeddings: a row of the matrix, times the root of the width."""

import math

import pytest
import torch

from clearhead.parts.embedding import TokenEmbedding


def test_it_looks_up_and_scales():
    embedding = TokenEmbedding(13, 7).double()
    ids = torch.tensor([[3, 0, 12], [5, 5, 1]])
    vectors = embedding(ids)
    assert vectors.shape == (2, 3, 7)
    for place, token in ((p, ids[p].item()) for p in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2))):
        torch.testing.assert_close(vectors[place], embedding.weight[token] * math.sqrt(7))


def test_only_the_tokens_looked_up_get_a_gradient():
    embedding = TokenEmbedding(13, 7)
    embedding(torch.tensor([[3, 5, 5]])).sum().backward()
    assert embedding.weight.grad.abs().sum(-1).nonzero().flatten().tolist() == [3, 5]
    torch.testing.assert_close(embedding.weight.grad[5], torch.full((7,), 2 * math.sqrt(7)))


@pytest.mark.parametrize("width", [32, 512])
def test_embedded_tokens_start_as_large_as_positions(width):
    torch.manual_seed(0)
    embedding = TokenEmbedding(1009, width)
    assert abs(embedding(torch.arange(1009)).std().item() - 0.5) < 0.01
    embedding.reset_parameters()
    assert abs(embedding(torch.arange(1009)).std().item() - 0.5) < 0.01
