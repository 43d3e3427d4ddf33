"""Recording while a search runs: beams, reordering and leaving sentences included."""

from __future__ import annotations

import torch

import clearhead
from clearhead.control_tokens import BOS, EOS
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.translator import Translator

HEADS = 2


# cases I1, I2
def test_a_search_finds_the_same_while_it_is_watched(half_trained, letters):
    translator = Translator(
        half_trained, *letters, DecodingOptions(beam_size=3, n_best=3, max_length_ratio=1.0, max_length_extra=2)
    )
    lines = ["badge", "cab", "heada", "fed", "a"]
    plain = translator.hypotheses(lines)
    with clearhead.record_attention(half_trained) as maps:
        assert translator.hypotheses(lines) == plain
    assert {name.rsplit(".", 1)[-1] for name in maps} == {"self_attention", "cross_attention"}
    for weights in maps.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


# case I1
def test_beams_are_queries_of_their_own_sentence(half_trained, letters):
    """Cross-attention's queries are the sentence's beams, in their order; padding has exactly no weight."""
    sources = [[*letters[0].encode(line), EOS] for line in ("badge", "fa")]
    source = torch.tensor([ids + [0] * (6 - len(ids)) for ids in sources])
    tokens = torch.tensor([[4, 5, 6], [7, 8, 9]])  # the beams of each sentence begin differently
    with torch.inference_mode(), clearhead.record_attention(half_trained) as maps:
        cache = half_trained.start_cache(half_trained.encode(source), beams=3)
        half_trained.step(torch.full((6, 1), BOS), cache)
        half_trained.step(tokens.reshape(6, 1), cache)
        swapped = torch.tensor([2, 0, 1, 3, 3, 5])
        cache.select(swapped)
        half_trained.step(tokens.reshape(6, 1), cache)
        cross, own = dict(maps)["decoder.layers.0.cross_attention"], dict(maps)["decoder.layers.0.self_attention"]
        assert cross.shape == (2, HEADS, 3, 6)
        assert own.shape == (6, HEADS, 1, 3)
        assert (cross[1, :, :, 3:] == 0).all()
        assert (cross[0] > 0).all()
        before = tokens.reshape(6)[swapped]
        for row in range(6):
            written = torch.tensor([[BOS, before[row], tokens.reshape(6)[row]]])
            half_trained(source[row // 3, None, : len(sources[row // 3])], written)
            alone_own = maps["decoder.layers.0.self_attention"][0, :, -1]
            torch.testing.assert_close(own[row, :, 0], alone_own, rtol=1e-4, atol=1e-6)
            alone = maps["decoder.layers.0.cross_attention"][0, :, -1]
            torch.testing.assert_close(cross[row // 3, :, row % 3, : alone.size(-1)], alone, rtol=1e-4, atol=1e-6)
