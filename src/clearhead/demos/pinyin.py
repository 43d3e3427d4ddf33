"""Chinese phrases to their pronunciation: `银行` to `yín háng`.

Why this task: a Chinese character is one syllable, and most characters have one reading. But some have
several, and only the neighbours tell which: 行 is háng in 银行 (bank) and xíng in 行走 (to walk). A method
that looks at one character at a time is right on six phrases of seven; what a Transformer adds to that is
what attention sees.

The target is a sequence of syllables with tone marks, each one symbol of a `word` tokenizer. Symbols instead
of letters, because a syllable is then one step of decoding, spelling can't go wrong, and the lengths of both
sides agree; tone marks instead of numbers (`háng`, not `hang2`), because it is how pinyin is printed and for
a symbol both are equally learnable.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from clearhead.demos.files import DemoFiles, missing_package, write_tsv

try:
    from pypinyin.phrases_dict import phrases_dict
    from pypinyin.pinyin_dict import pinyin_dict
except ModuleNotFoundError as error:
    raise missing_package("pypinyin") from error

RECIPE = Path(__file__).with_name("pinyin.toml")
TEST_PHRASES, VALID_PHRASES = 2_000, 500
SEED = 1


@cache
def phrases() -> dict[str, tuple[str, ...]]:
    """Every phrase of the dictionary with its reading, or readings: two phrases have another one."""
    return {phrase: _spell(readings) for phrase, readings in sorted(phrases_dict.items())}


def _spell(readings: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """`[[nà, nèi], [xiē]]` to `("nà xiē", "nèi xiē")`: one alternative at a time."""
    first = [choices[0] for choices in readings]
    spelled = [" ".join(first)]
    for position, choices in enumerate(readings):
        spelled += [" ".join([*first[:position], other, *first[position + 1 :]]) for other in choices[1:]]
    return tuple(spelled)


def dictionary_readings(character: str) -> list[str]:
    """All readings the dictionary knows for one character, the usual one first; empty if it knows none."""
    listed = pinyin_dict.get(ord(character), "")
    return listed.split(",") if listed else []


def single_characters() -> dict[str, str]:
    """The first dictionary reading of the 6,763 characters of the standard GB 2312.

    They stand for knowing one's characters: the choice is the standard's, so it tells nothing about the
    held-out phrases.
    """
    everyday = [chr(code) for code in sorted(pinyin_dict) if chr(code).encode("gb2312", errors="ignore")]
    return {character: dictionary_readings(character)[0] for character in everyday if "一" <= character <= "鿿"}


def split_phrases() -> tuple[list[str], list[str], list[str]]:
    """The phrases of training, validation and test, in random order; no phrase is in two of them."""
    shuffled = list(phrases())
    random.Random(SEED).shuffle(shuffled)
    held_out = TEST_PHRASES + VALID_PHRASES
    return shuffled[held_out:], shuffled[TEST_PHRASES:held_out], shuffled[:TEST_PHRASES]


def write_data(directory: Path) -> DemoFiles:
    """Writes train.tsv, valid.tsv and test.tsv: phrase TAB syllables [TAB other acceptable syllables]."""
    train, valid, test = split_phrases()
    files = DemoFiles(*(directory / f"{name}.tsv" for name in DemoFiles._fields))
    singles = sorted(single_characters().items())
    write_tsv(files.train, [*((phrase, *phrases()[phrase]) for phrase in train), *singles])
    write_tsv(files.valid, [(phrase, *phrases()[phrase]) for phrase in valid])
    write_tsv(files.test, [(phrase, *phrases()[phrase]) for phrase in test])
    return files


@cache
def counted_readings() -> Mapping[str, Counter[str]]:
    """How often each character has which reading in the training phrases."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for phrase in split_phrases()[0]:
        for character, syllable in zip(phrase, phrases()[phrase][0].split(" "), strict=True):
            counts[character][syllable] += 1
    return counts


def baseline(texts: Sequence[str]) -> list[str]:
    """Reads every character by itself: its most frequent reading in training, else the dictionary's first.

    Of equally frequent readings the one that comes first in the alphabet counts, so that the answer never
    varies.
    """
    return [" ".join(_usual_reading(character) for character in text) for text in texts]


def _usual_reading(character: str) -> str:
    counts = counted_readings().get(character)
    if counts:
        return min(counts, key=lambda syllable: (-counts[syllable], syllable))
    return next(iter(dictionary_readings(character)), character)


def polyphonic(text: str) -> list[str]:
    """The characters of a text that have more than one reading in the training phrases, each with those
    readings.

    `["行 xíng/háng"]` for 银行: usual reading first, at most three.
    """
    notes = []
    for character in dict.fromkeys(text):
        readings = [syllable for syllable, _ in counted_readings().get(character, Counter()).most_common(3)]
        if len(readings) > 1:
            notes.append(f"{character} {'/'.join(readings)}")
    return notes
