"""The cache: what was appended comes back, in order, after growing, reordering, repeating and narrowing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.parts.cache import DecoderCache, KeyValueCache, LayerCache

R, H, D = 3, 2, 5


def entries(rows, length, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, rows, H, length, D, generator=generator)


@settings(deadline=None)
@given(
    capacity=st.integers(0, 9),
    steps=st.lists(st.one_of(st.integers(1, 7), st.lists(st.integers(0, 10), min_size=1, max_size=5)), max_size=8),
)
def test_it_returns_all_that_was_appended(capacity, steps):
    """An integer appends so many positions; a list selects rows (modulo their number)."""
    cache = KeyValueCache(torch.empty(R, H, 0, D), capacity)
    expected = torch.empty(2, R, H, 0, D)
    for seed, step in enumerate(steps):
        if isinstance(step, int):
            new = entries(expected.size(1), step, seed)
            expected = torch.cat([expected, new], 3)
            key, value = cache.append(*new)
            assert torch.equal(key, expected[0])
            assert torch.equal(value, expected[1])
        else:
            rows = torch.tensor(step) % expected.size(1)
            cache.select(rows)
            expected = expected[:, rows]
        assert cache.length == expected.size(3)


def test_room_is_made_once_and_not_at_every_step():
    cache = KeyValueCache(torch.empty(R, H, 0, D), 4)
    sizes = set()
    for seed in range(100):
        cache.append(*entries(R, 1, seed))
        sizes.add(cache.keys.size(2))
    assert len(sizes) <= 6  # doubled, not lengthened one by one


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_it_has_the_kind_of_its_keys(dtype):
    cache = KeyValueCache(torch.empty(R, H, 0, D, dtype=dtype), 4)
    assert cache.append(*entries(R, 1, 0).to(dtype))[1].dtype == dtype


def test_a_decoders_cache_selects_hypotheses_and_sentences():
    # Two sentences of three beams each.
    layers = []
    for seed in range(2):
        past = KeyValueCache(torch.empty(6, H, 0, D), 4)
        past.append(*entries(6, 4, seed))
        layers.append(LayerCache(past, *entries(2, 7, 10 + seed)))
    cache = DecoderCache(layers, torch.rand(2, 1, 1, 7) > 0.5)
    assert cache.length == 4
    mask = cache.memory_mask

    reordered = torch.tensor([2, 0, 1, 3, 3, 5])
    cache.select(reordered)
    for seed, layer in enumerate(layers):
        assert torch.equal(layer.past.keys[:, :, :4], entries(6, 4, seed)[0][reordered])
        assert torch.equal(layer.memory_key, entries(2, 7, 10 + seed)[0])
    assert torch.equal(cache.memory_mask, mask)

    cache.select(torch.tensor([3, 4, 5]), torch.tensor([1]))  # the second sentence stays
    for seed, layer in enumerate(layers):
        assert torch.equal(layer.past.values[:, :, :4], entries(6, 4, seed)[1][reordered][3:])
        assert torch.equal(layer.memory_key, entries(2, 7, 10 + seed)[0][1:])
        assert torch.equal(layer.memory_value, entries(2, 7, 10 + seed)[1][1:])
    assert torch.equal(cache.memory_mask, mask[1:])
    assert cache.length == 4
