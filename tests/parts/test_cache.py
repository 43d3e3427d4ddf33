"""The cache: what was appended comes back, in order, after growing, and each hypothesis sees its own line of it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.parts.cache import DecoderCache, KeyValueCache, LayerCache, Rows

B, H, D = 3, 2, 5


def entries(sentences, length, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, sentences, H, length, D, generator=generator)


@settings(deadline=None)
@given(
    capacity=st.integers(0, 9),
    steps=st.lists(
        st.one_of(
            st.integers(1, 7),
            st.lists(st.integers(0, 10), min_size=1, max_size=5),
            st.tuples(st.integers(0, 10), st.integers(0, 10)),
        ),
        max_size=8,
    ),
)
def test_it_returns_all_that_was_appended_and_kept(capacity, steps):
    """An integer appends so many entries, a list keeps sentences (modulo their number), a pair keeps two entries."""
    cache = KeyValueCache(torch.empty(B, H, 0, D), capacity)
    expected = torch.empty(2, B, H, 0, D)
    for seed, step in enumerate(steps):
        if isinstance(step, int):
            new = entries(expected.size(1), step, seed)
            expected = torch.cat([expected, new], 3)
            key, value = cache.append(*new)
            assert torch.equal(key, expected[0])
            assert torch.equal(value, expected[1])
        elif isinstance(step, list):
            sentences = torch.tensor(step) % expected.size(1)
            cache.keep_sentences(sentences)
            expected = expected[:, sentences]
        elif expected.size(3) > 1:
            kept = torch.tensor([step for _ in range(expected.size(1))]) % expected.size(3)
            kept[0] = kept[0].flip(0)  # each sentence its own
            cache.keep_entries(kept)
            expected = torch.stack([expected[:, i, :, which] for i, which in enumerate(kept)], 1)
        assert cache.length == expected.size(3)


def test_room_is_made_once_and_not_at_every_step():
    cache = KeyValueCache(torch.empty(B, H, 0, D), 4)
    sizes = set()
    for seed in range(100):
        cache.append(*entries(B, 1, seed))
        sizes.add(cache.keys.size(2))
    assert len(sizes) <= 6  # doubled, not lengthened one by one


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_it_has_the_kind_of_its_keys(dtype):
    cache = KeyValueCache(torch.empty(B, H, 0, D, dtype=dtype), 4)
    assert cache.append(*entries(B, 1, 0).to(dtype))[1].dtype == dtype


def decoders_cache(sentences, beams, capacity):
    """Two layers, nothing decoded yet."""
    everyone = torch.ones(sentences, beams, dtype=torch.bool)
    layers = [
        LayerCache(KeyValueCache(torch.empty(sentences, H, 0, D), capacity), *entries(sentences, 7, 10 + seed))
        for seed in range(2)
    ]
    mask = torch.rand(sentences, 1, 1, 7) > 0.5
    return DecoderCache(layers, mask, Rows(everyone), everyone[:, :, None][:, :, :0])


def test_sentences_leave_every_layer():
    cache = decoders_cache(3, 2, 4)
    cache.advance(1)
    before = [(layer.memory_key, layer.memory_value) for layer in cache.layers]
    mask, staying = cache.memory_mask, torch.tensor([2, 0])
    cache.keep_sentences(staying)
    for layer, (key, value) in zip(cache.layers, before, strict=True):
        assert torch.equal(layer.memory_key, key[staying])
        assert torch.equal(layer.memory_value, value[staying])
        assert layer.past.keys.size(0) == layer.past.values.size(0) == 2
    assert torch.equal(cache.memory_mask, mask[staying])
    assert cache.past.shape == (2, 2, 2)


@settings(deadline=None)
@given(beams=st.integers(1, 4), capacity=st.integers(0, 12), data=st.data())
def test_each_hypothesis_has_its_own_line_behind_it(beams, capacity, data):
    """Against lists of what was appended, hypothesis by hypothesis; entries that are forgotten were nobody's."""
    cache, sentences = decoders_cache(3, beams, capacity), 3
    lines = [[[] for _ in range(beams)] for _ in range(sentences)]
    for seed, positions in enumerate(data.draw(st.lists(st.integers(1, 2), max_size=12))):
        mask = cache.advance(positions)
        new = entries(sentences, beams * positions, seed)
        for layer in cache.layers:
            key, _ = layer.past.append(*new)
        for sentence in range(sentences):
            for beam in range(beams):
                for position in range(positions):
                    lines[sentence][beam].append(new[0, sentence, 0, beam * positions + position, 0].item())
                    seen = key[sentence, 0, :, 0]
                    if mask is not None:
                        seen = seen[mask[sentence, 0, beam * positions + position]]
                    assert seen.tolist() == lines[sentence][beam]
        some = st.lists(st.integers(0, beams - 1), min_size=beams, max_size=beams)
        origins = [data.draw(some, label="origins") for _ in range(sentences)]
        cache.follow(torch.tensor(origins))
        lines = [[list(lines[s][origin]) for origin in origins[s]] for s in range(sentences)]
        assert cache.past.size(-1) == cache.layers[0].past.length == cache.layers[1].past.length


def test_what_no_hypothesis_has_behind_it_is_forgotten():
    """Beams that keep going on from one of them need little more room than that one alone."""
    cache = decoders_cache(2, 5, 32)
    for seed in range(100):
        cache.advance(1)
        for layer in cache.layers:
            layer.past.append(*entries(2, 5, seed))
        cache.follow(torch.tensor([[seed % 5] * 5, [3] * 5]))
    assert cache.length == 100
    assert cache.past.sum(-1).eq(100).all()
    assert cache.layers[0].past.capacity <= 256  # of 500 entries
