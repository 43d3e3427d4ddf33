"""The encoder reads a batch in pieces of neighbours."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.decoding.search import encode, pieces


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=20), most=st.integers(1, 60))
def test_pieces_hold_all_sources_in_order_and_few_tokens(lengths, most):
    sources = [[number] * length for number, length in enumerate(lengths)]
    found = list(pieces(sources, most))
    assert [source for piece in found for source in piece] == sources
    for piece in found:
        assert len(piece) == 1 or len(piece) * max(map(len, piece)) <= most
    for piece, following in itertools.pairwise(found):  # no piece is smaller than it has to be
        assert (len(piece) + 1) * max(map(len, [*piece, following[0]])) > most


def test_sources_encoded_in_pieces_are_the_same(random_model, random_sources, monkeypatch):
    import clearhead.decoding.search as module

    model, sources = random_model(3), random_sources(3, [9, 9, 7, 2, 2, 1, 4])
    whole = encode(model, sources)
    monkeypatch.setattr(module, "PIECE_TOKENS", {"cpu": 10})
    split = encode(model, sources)
    assert torch.equal(split.mask, whole.mask)
    real = whole.mask[:, 0, 0]
    assert real.sum(1).tolist() == [len(source) for source in sources]
    torch.testing.assert_close(split.states[real], whole.states[real])
