"""Heads that share keys and values, against torch's own attention with the shared heads written out."""

import pytest
import torch
import torch.nn.functional as F

from clearhead.parts.cache import Rows
from clearhead.parts.grouped_attention import GroupedQueryAttention
from clearhead.parts.positions import RotaryPositions, rotate

M, HEADS = 30, 5


@pytest.mark.parametrize("kv_heads", [1, 5])
@pytest.mark.parametrize("rotary", [False, True])
def test_each_head_of_keys_serves_its_queries(kv_heads, rotary):
    torch.manual_seed(0)
    attention = GroupedQueryAttention(M, HEADS, kv_heads, biases=False)
    x = torch.randn(2, 7, M)
    rotation = RotaryPositions(M // HEADS)(7) if rotary else None
    heads = []
    for head in range(HEADS):
        shared = head * kv_heads // HEADS
        query = x @ attention.w_q.weight[head * 6 : head * 6 + 6].T
        key, value = (x @ w.weight[shared * 6 : shared * 6 + 6].T for w in (attention.w_k, attention.w_v))
        if rotation is not None:
            query, key = (rotate(part[:, None], rotation)[:, 0] for part in (query, key))
        heads.append(F.scaled_dot_product_attention(query, key, value, is_causal=True))
    expected = torch.cat(heads, -1) @ attention.w_o.weight.T
    torch.testing.assert_close(attention(x, rotation=rotation), expected, rtol=1e-5, atol=1e-6)


# case M9
def test_a_mask_combines_with_causality():
    torch.manual_seed(0)
    attention = GroupedQueryAttention(M, HEADS, 1)
    x = torch.randn(1, 6, M)
    documents = torch.tensor([0, 0, 0, 1, 1, 1])
    mask = (documents[:, None] == documents)[None, None]
    apart = torch.cat([attention(x[:, :3]), attention(x[:, 3:])], 1)
    torch.testing.assert_close(attention(x, mask), apart, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_looking_back_shares_keys_without_copying_them():
    """Step by step it is the whole at once; and recording, which sees every head, changes no bit."""
    torch.manual_seed(0)
    attention = GroupedQueryAttention(M, 6, 2).eval()
    x = torch.randn(3, 5, M)
    whole, maps = attention(x), {}
    everyone = torch.ones(3, 1, dtype=torch.bool)
    found = []
    for recorder in (None, lambda weights: maps.update(last=weights)):
        attention.attention.recorder = recorder
        past = attention.start_cache(3, 8)
        found.append([attention.look_back(x[:, n : n + 1], past, Rows(everyone), None, None) for n in range(5)])
    torch.testing.assert_close(torch.cat(found[0], 1), whole, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    query, key, _ = attention.project(x, None)
    expected = (query[:, :, -1:] @ key.repeat_interleave(3, 1).mT / 5**0.5).softmax(-1)
    torch.testing.assert_close(maps["last"], expected, rtol=1e-5, atol=1e-6)
