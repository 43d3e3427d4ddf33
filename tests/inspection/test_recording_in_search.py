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
    """In their order. Their keys are all of the sentence's entries; those of other lines have exactly no weight."""
    sources = [[*letters[0].encode(line), EOS] for line in ("badge", "fa")]
    source = torch.tensor([ids + [0] * (6 - len(ids)) for ids in sources])
    tokens = torch.tensor([[4, 5, 6], [7, 8, 9]])  # the beams of each sentence begin differently
    origins = torch.tensor([[2, 0, 1], [0, 0, 2]])
    with torch.inference_mode(), clearhead.record_attention(half_trained) as maps:
        cache = half_trained.start_cache(half_trained.encode(source), beams=3)
        half_trained.step(torch.full((6, 1), BOS), cache)
        half_trained.step(tokens.reshape(6, 1), cache)
        cache.follow(origins)
        half_trained.step(tokens.reshape(6, 1), cache)
        cross, own = dict(maps)["decoder.layers.0.cross_attention"], dict(maps)["decoder.layers.0.self_attention"]
        assert cross.shape == (2, HEADS, 3, 6)
        assert own.shape == (2, HEADS, 3, 9)
        assert (cross[1, :, :, 3:] == 0).all()
        assert (cross[0] > 0).all()
        before = tokens.gather(1, origins)
        for sentence in range(2):
            for beam in range(3):
                written = torch.tensor([[BOS, before[sentence, beam], tokens[sentence, beam]]])
                half_trained(source[sentence, None, : len(sources[sentence])], written)
                behind = cache.past[sentence, beam]
                alone = maps["decoder.layers.0.self_attention"][0, :, -1]
                torch.testing.assert_close(own[sentence, :, beam, behind], alone, rtol=1e-4, atol=1e-6)
                assert (own[sentence, :, beam, ~behind] == 0).all()
                alone = maps["decoder.layers.0.cross_attention"][0, :, -1]
                torch.testing.assert_close(cross[sentence, :, beam, : alone.size(-1)], alone, rtol=1e-4, atol=1e-6)
