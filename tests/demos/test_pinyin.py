"""The phrases: readings are the dictionary's, nothing held out is in training, and the baseline is what it says."""

from collections import Counter
from pathlib import Path

import pytest
from pypinyin.phrases_dict import phrases_dict
from pypinyin.pinyin_dict import pinyin_dict

from clearhead.demos import pinyin
from clearhead.demos.files import DemoFiles, read_tsv
from clearhead.evaluation import evaluate_outputs


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    return pinyin.write_data(tmp_path_factory.mktemp("pinyin"))


def test_readings_are_those_of_the_dictionary(files: DemoFiles) -> None:
    phrases = 0
    for text, *readings in (row for path in files for row in read_tsv(path)):
        assert readings
        for reading in readings:
            syllables = reading.split(" ")
            assert len(syllables) == len(text)
            if text in phrases_dict:
                assert all(syllable in choices for syllable, choices in zip(syllables, phrases_dict[text], strict=True))
            else:
                assert syllables == pinyin_dict[ord(text)].split(",")[:1]
        phrases += text in phrases_dict
    assert phrases == len(phrases_dict) == 47_111


def test_two_phrases_have_two_readings(files: DemoFiles) -> None:
    several = {text: readings for path in files for text, *readings in read_tsv(path) if len(readings) > 1}
    assert several == {"朝阳": ["zhāo yáng", "cháo yáng"], "那些": ["nà xiē", "nèi xiē"]}


def test_nothing_held_out_is_in_training(files: DemoFiles) -> None:
    train, valid, test = ([text for text, *_ in read_tsv(path)] for path in files)
    assert len(test) == len(set(test)) == pinyin.TEST_PHRASES
    assert len(valid) == len(set(valid)) == pinyin.VALID_PHRASES
    assert len(train) == len(set(train))
    assert set(train).isdisjoint(valid + test)
    assert set(valid).isdisjoint(test)
    assert all(len(text) > 1 for text in valid + test)  # so the single characters of training can't be among them


def test_single_characters_are_those_of_the_standard() -> None:
    singles = pinyin.single_characters()
    assert len(singles) == 6_763  # as many as GB 2312 has
    assert all(len(character.encode("gb2312")) == 2 for character in singles)


def test_baseline_counts_readings_in_training_only(files: DemoFiles) -> None:
    counts = Counter()
    for text, reading, *_ in read_tsv(files.train):
        if len(text) > 1:
            counts.update(zip(text, reading.split(" "), strict=True))
    most = Counter()
    for (character, _), count in counts.items():
        most[character] = max(most[character], count)
    for character in {character for text, *_ in read_tsv(files.test) for character in text} & most.keys():
        assert counts[character, *pinyin.baseline([character])] == most[character]


def test_baseline_is_right_on_about_85_percent_of_the_phrases(files: DemoFiles) -> None:
    rows = read_tsv(files.test)
    outputs = pinyin.baseline([text for text, *_ in rows])
    scores = evaluate_outputs(outputs, [readings for _, *readings in rows], metrics=["exact_match", "per"])
    assert scores.exact_match == pytest.approx(85.4, abs=1.6)  # two standard errors of 2,000 phrases
    assert 4 < scores.per < 7


def test_baseline_of_characters_nobody_has_seen() -> None:
    unseen = next(chr(code) for code in pinyin_dict if not any(chr(code) in phrase for phrase in phrases_dict))
    assert pinyin.baseline([unseen + "a"]) == [pinyin_dict[ord(unseen)].split(",")[0] + " a"]


def test_polyphonic_characters_are_explained() -> None:
    (note,) = pinyin.polyphonic("银行")
    assert note.startswith("行 ")
    assert {"xíng", "háng"} <= set(note.removeprefix("行 ").split("/"))
    assert pinyin.polyphonic("银") == []


def test_the_same_bytes_every_time(files: DemoFiles, tmp_path: Path) -> None:
    again = pinyin.write_data(tmp_path)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in files]
