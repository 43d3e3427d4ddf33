"""Translator.inspect: the maps are those of what was really decoded, and nothing else changes."""

from __future__ import annotations

import math

import pytest
import torch

import clearhead
from clearhead.control_tokens import BOS, EOS
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.translator import Translator
from clearhead.errors import ConfigError, DataError
from clearhead.inspection.alignment import align

LINES = ["badge", "cab", "headache", "a"]


@pytest.fixture
def copyist(half_trained, letters) -> Translator:
    return Translator(half_trained, *letters, DecodingOptions(beam_size=3, max_length_ratio=1.2, max_length_extra=1))


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("beam_size", [1, 3])
def test_it_shows_the_best_hypothesis(copyist, line, beam_size):
    best = copyist.hypotheses([line], beam_size=beam_size)[0][0]
    found = copyist.inspect(line, beam_size=beam_size)
    assert (found.source, found.translation) == (line, best.text)
    assert found.source_tokens == [*line, "</s>"]
    assert found.target_tokens == [*best.tokens, "</s>"]
    assert found.log_probability == pytest.approx(best.log_probability, abs=1e-4)
    assert found.log_probability == pytest.approx(copyist.score([line], [best.text])[0].log_probability, abs=1e-5)


# cases I1, I2
@pytest.mark.parametrize("line", LINES)
def test_rows_are_those_of_cached_decoding(copyist, line):
    """Decoded token by token with a cache, every step shows the row that the one pass shows."""
    found = copyist.inspect(line, beam_size=1)
    model = copyist.model
    written = [BOS, *copyist.target_tokenizer.encode(found.translation)]
    source = torch.tensor([[*copyist.source_tokenizer.encode(line), EOS]])
    with torch.inference_mode(), clearhead.record_attention(model) as maps:
        cache = model.start_cache(model.encode(source))
        torch.testing.assert_close(maps["encoder.layers.0.self_attention"][0], found.encoder[0])
        for step, token in enumerate(written):
            logits = model.step(torch.tensor([[token]]), cache)[0, -1]
            own, cross = (maps[f"decoder.layers.0.{kind}_attention"][0, :, 0] for kind in ("self", "cross"))
            torch.testing.assert_close(own, found.decoder[0, :, step, : step + 1], rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(cross, found.cross[0, :, step], rtol=1e-4, atol=1e-6)
            shown = found.steps[step]
            probabilities = logits.double().softmax(-1)
            assert shown.probability == pytest.approx(float(probabilities[([*written[1:], EOS])[step]]), abs=1e-5)
            best, ids = probabilities.topk(5)
            assert [one.token for one in shown.alternatives] == copyist.target_tokenizer.tokens(ids.tolist())
            assert [one.probability for one in shown.alternatives] == pytest.approx(best.tolist(), abs=1e-5)
            assert shown.token == shown.alternatives[0].token  # greedy search


# case I1
def test_shapes_and_labels(make_translator):
    """Different numbers everywhere, so that nothing can be mistaken for another thing."""
    translator = make_translator("a b c d e", "v w x y z")
    found = translator.inspect("d a c b a e", target="z z x w")
    assert found.encoder.shape == (2, 3, 7, 7)
    assert found.decoder.shape == (4, 3, 5, 5)
    assert found.cross.shape == (4, 3, 5, 7)
    assert found.labels("encoder") == (["d", "a", "c", "b", "a", "e", "</s>"],) * 2
    assert found.labels("decoder") == (["z", "z", "x", "w", "</s>"], ["<s>", "z", "z", "x", "w"])
    assert found.labels("cross") == (found.target_tokens, found.source_tokens)
    for maps in (found.encoder, found.decoder, found.cross):
        torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))
    assert (found.decoder[..., torch.ones(5, 5, dtype=torch.bool).triu(1)] == 0).all()
    assert torch.equal(found.weights("cross", 3, 1), found.cross[3, 1])
    torch.testing.assert_close(found.weights("decoder", 2), found.decoder[2].sum(0) / 3)
    decided = [
        (float((found.cross[place] ** 2).sum(-1).mean()), place)
        for place in ((i, j) for i in range(4) for j in range(3))
    ]
    assert found.sharpest() == max(decided)[1]


@pytest.mark.parametrize("training", [False, True])
def test_looking_leaves_the_model_as_it_was(make_translator, training):
    translator = make_translator("a b c", "x y z", dropout=0.5)
    before = translator.translate("a b c a")
    translator.model.train(training)
    first, second = (translator.inspect("a b c a") for _ in range(2))
    assert translator.model.training is training
    assert first.translation == second.translation == before
    assert torch.equal(first.cross, second.cross)


def test_a_source_that_is_cut_shows_what_was_read(make_translator):
    translator = make_translator("a b c", "x y z")
    found = translator.inspect("a b c a b", target="x y", max_source_length=3)
    assert found.source_tokens == ["a", "b", "c", "</s>"]
    assert found.source_cut
    assert found.notes == ["the source is too long; what comes after 3 tokens was not read"]
    assert not translator.inspect("a b c a b", target="x y", max_source_length=5).notes


def test_a_translation_that_is_cut_says_so(copyist):
    """As `hypotheses` does; of a target of somebody's own there is nothing to cut."""
    limit = {"max_length_ratio": 0.0, "max_length_extra": 2}
    assert copyist.hypotheses(["headache"], **limit)[0][0].hit_length_limit
    found = copyist.inspect("headache", **limit)
    assert found.hit_length_limit
    assert found.notes == ["the output was cut at its length limit of 2 tokens"]
    assert not copyist.inspect("headache", target="HEADACHE", **limit).notes


def test_unknown_words_and_an_empty_target(make_translator):
    found = make_translator("a b", "x y").inspect("a q", target="")
    assert found.source_tokens == ["a", "<unk>", "</s>"]
    assert (found.target_tokens, found.translation, found.alignment) == (["</s>"], "", [2])


@pytest.mark.parametrize("text", ["", "  ", "\u3000"])
def test_there_is_nothing_in_a_blank_text(copyist, text):
    with pytest.raises(DataError, match="blank"):
        copyist.inspect(text)


def test_questions_that_have_no_answer(make_translator):
    found = make_translator("a b", "x y", encoder_layers=0).inspect("a b")
    assert found.encoder.shape == (0, 3, 3, 3)
    for ask, message in [
        (lambda: found.maps("self"), "'self'.*encoder, decoder, cross"),
        (lambda: found.weights("cross", 4), "no layer 4: they are 0 to 3"),
        (lambda: found.weights("cross", -1), "no layer -1"),
        (lambda: found.weights("cross", 0, 3), "no head 3: they are 0 to 2"),
        (lambda: found.weights("encoder", 0), "no layer 0: there are none"),
        (lambda: found.sharpest("encoder"), "no encoder attention"),
        (lambda: make_translator("a", "x").inspect("a", alternatives=0), "alternatives = 0"),
        (lambda: make_translator("a", "x").inspect("a", beam=3), "no option 'beam'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            ask()


def test_alternatives_are_as_many_as_asked_for(make_translator):
    translator = make_translator("a b", "x y z")
    for wanted, given in [(1, 1), (4, 4), (99, translator.target_tokenizer.vocab_size)]:
        for step in translator.inspect("a b", alternatives=wanted).steps:
            assert len(step.alternatives) == given
    assert math.fsum(one.probability for one in step.alternatives) == pytest.approx(1.0, abs=1e-5)


def test_alignment_by_hand():
    """The mean over layers and heads decides; the ends belong to each other, and no other token to the source's end."""
    cross = torch.zeros(2, 2, 3, 4)
    cross[0] = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.1, 0.0, 0.9], [1.0, 0.0, 0.0, 0.0]])
    cross[1, 0] = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.1, 0.9], [1.0, 0.0, 0.0, 0.0]])
    cross[1, 1] = torch.tensor([[0.6, 0.4, 0.0, 0.0], [0.0, 0.0, 0.7, 0.3], [1.0, 0.0, 0.0, 0.0]])
    assert align(cross) == [1, 2, 3]
    assert align(cross[1:]) == [0, 2, 3]
    assert align(cross[:1]) == [1, 1, 3]
    assert align(cross[..., :1]) == [0, 0, 0]  # a source of nothing but its end


def test_it_says_what_it_is(copyist):
    assert repr(copyist.inspect("a")).startswith("Inspection('a' → 'A")
