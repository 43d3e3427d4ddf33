"""Text in, text out: blank lines, odd lines, prefixes, and a model that is in the midst of its training."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import clearhead
from clearhead.config import ModelConfig
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.translator import EMPTY, Translator
from clearhead.errors import ConfigError, DataError
from clearhead.models.transformer import Transformer
from clearhead.text.tokenizers import CONTROL_COUNT, train_tokenizer

BLANK = ["", " ", "\t ", "\u00a0", "\u200b", "\ufeff", "\u2028", "\x85", "\x0b\x0c\x1c", "\u3000\u00ad"]


@pytest.fixture
def calls(translator) -> Iterator[list[int]]:
    """Sizes of the batches that the encoder and the decoder were asked about."""
    sizes: list[int] = []
    parts = (translator.model.encoder, translator.model.decoder.layers[0].feed_forward)
    handles = [part.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0]))) for part in parts]
    yield sizes
    for handle in handles:
        handle.remove()


# cases D4, D5
@pytest.mark.parametrize("changes", [{"beam_size": 1}, {"n_best": 3}, {"sample": True, "n_best": 2}])
def test_blank_texts_are_empty_and_no_model_is_asked(translator, calls, changes):
    n_best = changes.get("n_best", 1)
    assert translator.hypotheses(BLANK, **changes) == [[EMPTY] * n_best] * len(BLANK)
    assert translator.hypotheses(BLANK, prefixes="ABC", **changes) == [[EMPTY] * n_best] * len(BLANK)
    assert translator.translate("", beam_size=1) == ""
    assert translator.translate([]) == []
    assert calls == []
    translator.translate("abc", beam_size=1)
    assert calls


# cases D4, D5
def test_blank_lines_keep_the_numbering(translator):
    texts = ["", "bad", " ", "", "head", "\u200b", "cab", "\u00a0"]
    alone = dict(zip(["bad", "head", "cab"], translator.translate(["bad", "head", "cab"]), strict=True))
    assert translator.translate(texts) == [alone.get(text, "") for text in texts]
    assert [found[0].text for found in translator.translate_lines(texts, chunk=3)] == translator.translate(texts)


def test_a_source_of_nothing_but_separators_is_blank(half_trained, letters, calls):
    symbols = train_tokenizer("word", ["a|b|c|d|e|f|g|h"], separator="|")
    translator = Translator(half_trained, symbols, letters[1])
    assert translator.translate(["||", "|"], beam_size=1) == ["", ""]
    assert calls == []


def test_one_text_or_several(translator):
    assert translator.translate("bad") == translator.translate(["bad"])[0]
    assert isinstance(translator.translate("bad"), str)


def test_the_options_of_the_translator_are_the_defaults(half_trained, letters, lines):
    greedy = Translator(half_trained, *letters, DecodingOptions(beam_size=1, max_length_ratio=1.0, max_length_extra=2))
    wide = Translator(half_trained, *letters, DecodingOptions(beam_size=5, max_length_ratio=1.0, max_length_extra=2))
    assert greedy.translate(lines) == wide.translate(lines, beam_size=1)
    assert greedy.translate(lines, beam_size=5) == wide.translate(lines) != greedy.translate(lines)
    with pytest.raises(ConfigError, match="no option 'beem_size'"):
        greedy.translate("bad", beem_size=3)


# case S6
def test_more_outputs_than_the_recipes_beam(translator):
    assert len(translator.hypotheses(["bad"], n_best=8)[0]) == 8


# the model of a training run: validation decodes with it between two updates
@pytest.mark.parametrize("training", [True, False])
def test_a_model_stays_in_its_mode_and_has_no_dropout_meanwhile(letters, lines, training):
    torch.manual_seed(0)
    shape = {"d_model": 8, "d_ff": 8, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.5}
    vocabulary = letters[0].vocab_size
    model = Transformer(ModelConfig(source_vocab=vocabulary, target_vocab=vocabulary, **shape)).train(training)
    translator = Translator(model, *letters, DecodingOptions(beam_size=2, max_length_ratio=1.0, max_length_extra=2))
    modes = []
    model.encoder.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    random_state = torch.get_rng_state()
    found = translator.hypotheses(lines[:9])
    scores = translator.score(lines[:9], [outputs[0].text for outputs in found])
    assert torch.equal(torch.get_rng_state(), random_state)  # the training's random numbers are not touched either
    assert modes
    assert not any(modes)
    assert all(module.training == training for module in model.modules())
    model.eval()
    assert translator.hypotheses(lines[:9]) == found
    assert translator.score(lines[:9], [outputs[0].text for outputs in found]) == scores


def test_a_model_is_back_in_its_mode_after_an_error(letters):
    vocabulary = letters[0].vocab_size
    model = Transformer(ModelConfig(source_vocab=vocabulary, target_vocab=vocabulary, d_model=8, n_heads=1)).train()

    def fail(*_):
        raise ZeroDivisionError

    model.encoder.register_forward_pre_hook(fail)
    translator = Translator(model, *letters)
    with pytest.raises(ZeroDivisionError):
        translator.translate("abc")
    with pytest.raises(ZeroDivisionError):
        translator.score(["abc"], ["ABC"])
    assert all(module.training for module in model.modules())


# case S3: a long sentence makes the table of positions grow while no gradients are kept
def test_training_goes_on_after_a_translation_of_any_length(letters):
    torch.manual_seed(0)
    shape = {"d_model": 8, "d_ff": 8, "n_heads": 1, "encoder_layers": 1, "decoder_layers": 1}
    vocabulary = letters[0].vocab_size
    model = Transformer(ModelConfig(source_vocab=vocabulary, target_vocab=vocabulary, **shape)).train()
    Translator(model, *letters).translate("ab" * 300, beam_size=1, max_length_ratio=0.0, max_length_extra=1)
    ids = torch.full((1, 601), 4)
    model(ids, ids).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


# case V2
def test_the_users_text_makes_no_control_tokens(half_trained):
    """Sources and prefixes that spell the control tokens are text like any other."""
    tokenizer = train_tokenizer("char", ["</pads>e"])
    assert tokenizer.vocab_size == half_trained.config.target_vocab
    translator = Translator(half_trained, tokenizer, tokenizer, DecodingOptions(beam_size=2))
    for text in ("</s>", "<pad>", "</s></s>", "</s>d<pad>"):
        assert min(tokenizer.encode(text)) >= CONTROL_COUNT
        found = translator.hypotheses([text], prefixes=text, max_length_extra=20)[0][0]
        assert found.text.startswith(text)
        assert found.ids[: len(text)] == tokenizer.encode(text)
        assert found.log_probability == pytest.approx(
            translator.score([text], [found.text])[0].log_probability, abs=1e-3
        )
    # Text behind a spelled end token is read like the rest.
    one, other = translator.score(["d</s>sad", "d</s>das"], ["das", "das"])
    assert one.log_probability != pytest.approx(other.log_probability, abs=1e-6)


def test_a_prefix_that_the_vocabulary_cannot_spell_is_refused(translator):
    with pytest.raises(DataError, match=r"begin with 'BÄD'.*'B�D'"):
        translator.translate(["bad", "head"], prefixes=["BAD", "BÄD"])
    assert translator.translate(["bad", ""], prefixes=["BAD", "Ä"])[1] == ""  # nothing is asked of a blank text


def test_one_prefix_for_all_or_one_for_each(translator):
    texts = ["bad", "head", "fed"]
    assert translator.translate(texts, prefixes="CAB") == translator.translate(texts, prefixes=["CAB"] * 3)
    assert translator.translate("bad", prefixes="CAB") == translator.translate(texts, prefixes="CAB")[0]
    with pytest.raises(DataError, match="3 texts, but 2 prefixes"):
        translator.translate(texts, prefixes=["A", "B"])


def test_lines_and_their_prefixes_go_together(translator):
    texts, prefixes = ["bad", "head", "fed", "cab"], ["B", "", "FE", "C"]
    expected = translator.hypotheses(texts, prefixes=prefixes)
    for chunk in (1, 3, None):
        found = translator.translate_lines(iter(texts), prefixes=iter(prefixes), chunk=chunk)
        assert [[one.text for one in outputs] for outputs in found] == [
            [one.text for one in outputs] for outputs in expected
        ]
    with pytest.raises(DataError, match="line 4 has no prefix"):
        list(translator.translate_lines(texts, prefixes=prefixes[:3], chunk=2))
    with pytest.raises(DataError, match="prefix 5 has no line"):
        list(translator.translate_lines(texts, prefixes=[*prefixes, ""], chunk=2))


def test_lines_are_read_as_they_are_needed(translator):
    """Memory stays bounded, and a person who types gets an answer after each line."""
    read = []

    def typed():
        for line in ("bad", "", "head", "fed"):
            read.append(line)
            yield line

    answers = translator.translate_lines(typed(), chunk=1, beam_size=1)
    for number, expected in enumerate(translator.translate(["bad", "", "head", "fed"], beam_size=1), start=1):
        assert next(answers)[0].text == expected
        assert len(read) == number
    assert list(answers) == []
    pulled = []
    next(translator.translate_lines((pulled.append(i) or "bad" for i in range(10_000)), batch_size=2, beam_size=1))
    assert len(pulled) <= 64


def test_sources_and_targets_have_to_be_as_many(translator):
    with pytest.raises(DataError, match="2 sources, but 1 targets"):
        translator.score(["a", "b"], ["A"])
    assert translator.score([], []) == []


def test_a_score_is_the_sum_over_the_tokens_and_the_end(translator):
    [score] = translator.score(["bad"], ["BAA"])
    ids = translator.target_tokenizer.encode("BAA")
    source = torch.tensor([[*translator.source_tokenizer.encode("bad"), 2]])
    logits = translator.model(source, torch.tensor([[1, *ids]]))[0].double()
    expected = sum(logits.log_softmax(-1)[place, id].item() for place, id in enumerate([*ids, 2]))
    assert score.log_probability == pytest.approx(expected, abs=1e-4)
    assert score.tokens == 4
    assert translator.score(["bad"], [""])[0].tokens == 1


def test_hypotheses_say_what_they_are_made_of(translator):
    one = translator.hypotheses(["bad"])[0][0]
    assert isinstance(one.text, str)
    assert "".join(one.tokens) == one.text == translator.target_tokenizer.decode(one.ids)
    assert clearhead.Translator is Translator
