"""Matrices laid out for products of few rows."""

from __future__ import annotations

import copy

import torch
from torch import nn

from clearhead.decoding.layout import lay_out_for_few_rows
from clearhead.models.transformer import parameter_names


def test_nothing_but_the_order_in_memory_changes(random_model):
    model = random_model(4, tied="all")
    other = copy.deepcopy(model)
    lay_out_for_few_rows(other)
    source, target = torch.tensor([[4, 5, 2]]), torch.tensor([[1, 5, 6, 7]])
    torch.testing.assert_close(other(source, target), model(source, target))
    assert other.state_dict().keys() == model.state_dict().keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], weight), name
    linears = [module for module in other.modules() if isinstance(module, nn.Linear)]
    assert len(linears) == 4 + 2 + 8 + 2 + 1
    assert all(linear.weight.t().is_contiguous() for linear in linears)
    # Embeddings are looked up row by row: they stay as they were, so a tied projection is a matrix of its own.
    assert other.target_embedding.weight.is_contiguous()
    assert parameter_names(other).keys() - parameter_names(model).keys() == {"projection.weight"}
