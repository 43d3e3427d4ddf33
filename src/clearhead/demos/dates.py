"""Dates as people write them to ISO 8601: `11 novembre 1918` to `1918-11-11`.

Why this task: it is a true translation in small. The order changes (`November 3, 1918`), words become
numbers, digits of other scripts become ours (`٣ نوفمبر ١٩١٨`), and anyone can check an answer by eye.

The texts are those of 25 locales in CLDR, Unicode's collection of how people write, read through the package
babel: short, medium, long and full form of each, in the language's own digits too where it has them. Every
day of the years 1900 to 2099 belongs to training, validation or test alone, so the test shows dates the model
has never seen in any language.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

from clearhead.demos.files import DemoFiles, missing_package, write_tsv

try:
    from babel import Locale
    from babel.dates import format_date
except ModuleNotFoundError as error:
    raise missing_package("babel") from error

RECIPE = Path(__file__).with_name("dates.toml")
LOCALES = (
    *("en_US", "en_GB", "de", "nl", "sv", "fr", "es", "it", "pt"),  # Latin script
    *("fi", "hu", "tr", "pl", "hr", "ru", "el"),  # ... with rich endings, then Cyrillic and Greek
    *("ar_EG", "fa", "he", "hi", "bn", "th"),  # right to left; digits of their own
    *("zh_Hans_CN", "ja", "ko"),
)
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)
TEST_DAYS, VALID_DAYS = 4_000, 500
TRAIN_TEXTS_PER_DAY = 2
SEED = 1

# The digits of a script are ten consecutive characters; these are their zeros by CLDR's name of the numbering
# system.
ZEROS = {"arab": "٠", "arabext": "۰", "beng": "০", "deva": "०", "thai": "๐"}
# What CLDR puts around numbers for typesetting and nobody types: narrow and plain no-break space,
# right-to-left mark.
TYPED = str.maketrans({"\u202f": " ", "\u00a0": " ", "\u200f": None})


class Form(NamedTuple):
    """One way to write a date."""

    locale: "Locale"
    pattern: str  # CLDR's, such as "d MMMM y"
    zero: str  # the digit zero of the script

    def write(self, day: date) -> str:
        """The day in this form."""
        text = format_date(day, self.pattern, locale=self.locale).translate(TYPED)
        return text if self.zero == "0" else text.translate(digits_from(self.zero))


@cache
def forms_of(locale: str) -> tuple[Form, ...]:
    """CLDR's four forms of a locale, in Western digits and in its own.

    A year of two digits would leave the century open, so a short form gets all four.
    """
    data = Locale.parse(locale)
    patterns = [data.date_formats[length].pattern for length in ("short", "medium", "long", "full")]
    own = data.other_numbering_systems.get("native", "latn")
    zeros = ["0", ZEROS[own]] if own in ZEROS else ["0"]
    unique = dict.fromkeys(re.sub(r"\byy\b", "y", pattern) for pattern in patterns)
    return tuple(Form(data, pattern, zero) for pattern in unique for zero in zeros)


@cache
def digits_from(zero: str) -> dict[int, int]:
    """For `str.translate`: Western digits to those that begin with this zero."""
    return {ord("0") + digit: ord(zero) + digit for digit in range(10)}


def reading_key(text: str) -> str:
    """What a reader sees in a text: numbers as numbers (`03` and `٣` are 3), any year as Y, no capitals."""
    return re.sub(r"\d+", lambda found: "Y" if len(found[0]) == 4 else str(int(found[0])), text).casefold()


@cache
def ambiguous_readings() -> frozenset[str]:
    """The keys of texts that different locales read as different days: 3/11/1918 is in March or in November.

    One leap year shows them all, as no form uses anything of the year but its number and its weekdays.
    """
    days_read: dict[str, set[date]] = defaultdict(set)
    for day in days_between(date(2000, 1, 1), date(2000, 12, 31)):
        for locale in LOCALES:
            for form in forms_of(locale):
                days_read[reading_key(form.write(day))].add(day)
    return frozenset(key for key, days in days_read.items() if len(days) > 1)


def days_between(first: date, last: date) -> Iterator[date]:
    """Every day from the first to the last, both included."""
    for offset in range((last - first).days + 1):
        yield first + timedelta(days=offset)


def write_date(day: date, generator: random.Random) -> str:
    """The day as somebody somewhere writes it, in a form that leaves no doubt which day it is."""
    while True:
        text = generator.choice(forms_of(generator.choice(LOCALES))).write(day)
        if reading_key(text) not in ambiguous_readings():
            return vary_capitals(text, generator)


def vary_capitals(text: str, generator: random.Random) -> str:
    """Most texts as they are; some all small, some with capital words: people type `3 Novembre` too."""
    match generator.randrange(10):
        case 0:
            return text.lower()
        case 1:
            return re.sub(r"[^\W\d_]{3,}", lambda word: word[0][0].upper() + word[0][1:], text)
        case _:
            return text


def split_days() -> tuple[list[date], list[date], list[date]]:
    """The days of training, validation and test, in random order; no day is in two of them."""
    days = list(days_between(FIRST_DAY, LAST_DAY))
    random.Random(SEED).shuffle(days)
    held_out = TEST_DAYS + VALID_DAYS
    return days[held_out:], days[TEST_DAYS:held_out], days[:TEST_DAYS]


def write_data(directory: Path) -> DemoFiles:
    """Writes train.tsv, valid.tsv and test.tsv: text TAB ISO date. The same bytes each time."""
    train_days, valid_days, test_days = split_days()
    generator = random.Random(SEED)
    files = DemoFiles(*(directory / f"{name}.tsv" for name in DemoFiles._fields))
    write_tsv(files.test, _rows(test_days, 1, generator))
    write_tsv(files.valid, _rows(valid_days, 1, generator))
    write_tsv(files.train, _rows(train_days, TRAIN_TEXTS_PER_DAY, generator))
    return files


def _rows(days: Sequence[date], texts_per_day: int, generator: random.Random) -> Iterator[tuple[str, str]]:
    for day in days:
        for _ in range(texts_per_day):
            yield write_date(day, generator), day.isoformat()
