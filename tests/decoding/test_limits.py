"""Where an output stops, and what is said when it was stopped."""

from __future__ import annotations

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.control_tokens import EOS
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.search import search
from clearhead.decoding.translator import Translator
from clearhead.models.transformer import Transformer


@pytest.fixture(scope="module")
def endless(letters) -> Transformer:
    """A model of one small layer whose end token is next to impossible: it writes until it is stopped."""
    torch.manual_seed(3)
    shape = {"d_model": 8, "d_ff": 8, "n_heads": 1, "encoder_layers": 1, "decoder_layers": 1, "tied": "none"}
    vocabulary = letters[0].vocab_size
    model = Transformer(ModelConfig(source_vocab=vocabulary, target_vocab=vocabulary, **shape))
    with torch.no_grad():
        model.decoder.layers[0].add_and_norm_3.norm.beta[0] = 6.0
        model.projection.weight[:, 0] = 0.0
        model.projection.weight[EOS, 0] = -4.0
    return model.requires_grad_(False).eval()


# case G9
@pytest.mark.parametrize("changes", [{"beam_size": 1}, {"beam_size": 4, "n_best": 4}, {"sample": True, "n_best": 2}])
def test_an_output_that_never_ends_is_cut_and_says_so(endless, letters, changes):
    translator = Translator(endless, *letters)
    found = translator.hypotheses(["a", "abcde", "gh"], max_length_ratio=1.5, max_length_extra=3, **changes)
    for outputs, limit in zip(found, [4, 10, 6], strict=True):
        for one in outputs:
            assert len(one.ids) == limit
            assert one.hit_length_limit


def test_limits_are_each_sentences_own_and_no_output_is_longer(translator, lines):
    options = {"max_length_ratio": 1.0, "max_length_extra": 1, "beam_size": 1}
    cut = 0
    for line, [one] in zip(lines, translator.hypotheses(lines, **options), strict=True):
        assert len(one.ids) <= len(line) + 1
        assert not one.hit_length_limit or len(one.ids) == len(line) + 1
        cut += one.hit_length_limit
    assert 0 < cut < 50


def test_an_end_that_came_by_itself_is_not_a_cut(translator, lines):
    """One output of the very length of the limit: cut if the model would have gone on, not if it ended there."""
    free = [found[0] for found in translator.hypotheses(lines, beam_size=1, max_length_ratio=3.0, max_length_extra=20)]
    ended = [(line, one) for line, one in zip(lines, free, strict=True) if not one.hit_length_limit and one.ids][:12]
    assert len(ended) == 12
    for line, one in ended:
        exact = {"max_length_ratio": 0.0, "max_length_extra": len(one.ids), "beam_size": 1}
        again = translator.hypotheses([line], **exact)[0][0]
        assert (again.ids, again.hit_length_limit) == (one.ids, False)
        if len(one.ids) > 1:
            shorter = translator.hypotheses([line], **{**exact, "max_length_extra": len(one.ids) - 1})[0][0]
            assert shorter.hit_length_limit
            assert shorter.ids == one.ids[:-1]


def test_what_other_hypotheses_would_do_cuts_nothing(random_model, random_sources):
    """With a beam, the flag is each hypothesis' own: would this one have gone on?"""
    flags = set()
    for seed in range(8):
        model, sources = random_model(seed), random_sources(seed, [2, 3])
        options = DecodingOptions(beam_size=4, n_best=4, max_length_ratio=1.0, max_length_extra=0)
        for source, found in zip(sources, search(model, sources, options), strict=True):
            for one in found:
                following = model(torch.tensor([source]), torch.tensor([[1, *one.ids]]))[0, -1]
                following[[0, 1, 3]] = -torch.inf
                cut = len(one.ids) == len(source) - 1 and following.argmax().item() != EOS
                assert one.hit_length_limit == cut
                flags.add((len(found) == 4, cut))
    assert {cut for _, cut in flags} == {False, True}


# cases G10, S3: the default options, and past the 512 positions that a model begins with
def test_a_long_source_is_neither_cut_nor_its_output(endless, letters):
    translator = Translator(endless, *letters, DecodingOptions(beam_size=1))
    source = "abcdefgh" * 37 + "abcd"
    [one] = translator.hypotheses([source])[0]
    assert len(source) == 300
    assert len(one.ids) == 3 * 300 + 50
    assert one.hit_length_limit
    assert not one.source_cut
    assert one.log_probability == pytest.approx(translator.score([source], [one.text])[0].log_probability, rel=1e-5)
    # Its last token is read: another one gives another score.
    other = translator.score([source[:-1] + "a"], [one.text])[0]
    assert other.log_probability != translator.score([source], [one.text])[0].log_probability


# case S3: limit exactly n, n + 1
@pytest.mark.parametrize(("length", "cut"), [(9, False), (10, False), (11, True), (30, True)])
def test_a_source_beyond_the_limit_is_cut_and_says_so(translator, length, cut):
    source = ("headbadge" * 4)[:length]
    options = {"max_source_length": 10, "n_best": 2}
    found = translator.hypotheses([source, "bad"], **options)
    assert [[one.source_cut for one in outputs] for outputs in found] == [[cut, cut], [False, False]]
    expected = translator.hypotheses([source[:10]], **options)[0]
    assert [one.text for one in found[0]] == [one.text for one in expected]
    # The same in scoring, so that scores agree.
    narrow = Translator(
        translator.model,
        translator.source_tokenizer,
        translator.target_tokenizer,
        DecodingOptions(max_source_length=10),
    )
    score = narrow.score([source], [found[0][0].text])[0]
    assert score.source_cut == cut
    assert score.log_probability == pytest.approx(found[0][0].log_probability, abs=1e-4)


def test_a_prefix_longer_than_the_limit_is_written_whole(translator):
    limit = {"max_length_ratio": 0.0, "max_length_extra": 2, "beam_size": 3}
    found = translator.hypotheses(["bad", "bad"], prefixes=["BADHEAD", ""], n_best=3, **limit)
    assert [one.text for one in found[0]] == ["BADHEAD"]  # no other output exists
    assert len(found[1]) == 3
    assert all(len(one.ids) <= 2 for one in found[1])


def test_there_may_be_fewer_outputs_than_asked_for(random_model, random_sources):
    """One token at most from two: the end at once, or either token and the end."""
    model, [source] = random_model(1, tokens=2), random_sources(1, [3], tokens=2)
    limit = {"max_length_ratio": 0.0, "max_length_extra": 1}
    found = search(model, [source], DecodingOptions(beam_size=9, n_best=9, **limit))[0]
    assert sorted(one.ids for one in found) == [[], [4], [5]]


def test_a_long_batch_is_split_but_scored_alike(translator, monkeypatch):
    """Batches are bounded by their tokens too, in translating and in scoring."""
    from clearhead.decoding import search
    from clearhead.decoding import translator as module

    sizes = []
    handle = translator.model.encoder.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape[:2]))
    lines = ["abcdefg"] * 6 + ["ab"] * 12
    try:
        expected = translator.translate(lines, beam_size=1)
        scores = translator.score(lines, expected)
        sizes.clear()
        monkeypatch.setattr(search, "BATCH_TOKENS", 24)
        monkeypatch.setattr(module, "SCORED_TOKENS", 24)
        assert translator.translate(lines, beam_size=1) == expected
        again = translator.score(lines, expected)
    finally:
        handle.remove()
    assert [one.log_probability for one in again] == pytest.approx([one.log_probability for one in scores], abs=1e-4)
    assert len(sizes) > 5
    assert all(rows * length <= 24 for rows, length in sizes)
