"""The dates: each text means the day it stands beside, no text means two, and no day is in two files."""

import random
import re
import unicodedata
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path

import pytest
from babel import Locale

from clearhead.demos import dates
from clearhead.demos.files import DemoFiles, read_tsv

ISO = re.compile(r"(19|20)\d\d-\d\d-\d\d", re.ASCII)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> DemoFiles:
    return dates.write_data(tmp_path_factory.mktemp("dates"))


def test_targets_are_iso_days_and_their_numbers_stand_in_the_text(files: DemoFiles) -> None:
    for text, target in (row for path in files for row in read_tsv(path)):
        assert ISO.fullmatch(target)
        day = date.fromisoformat(target)
        assert dates.FIRST_DAY <= day <= dates.LAST_DAY
        numbers = [int(number) for number in re.findall(r"\d+", text)]  # int reads the digits of every script
        assert day.year in numbers
        assert day.day in numbers


def test_weekdays_are_those_of_the_calendar(files: DemoFiles) -> None:
    english = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
    seen = 0
    for text, target in read_tsv(files.train):
        for number, name in enumerate(english):
            if name in text.lower():
                assert date.fromisoformat(target).weekday() == number
                seen += 1
    assert seen > 1_000


def test_months_are_those_of_the_locale_data(files: DemoFiles) -> None:
    months = {name: number for number, name in Locale.parse("fr").months["format"]["wide"].items()}
    pattern = re.compile(rf"\d ({'|'.join(months)}) \d{{4}}$")
    found = [(pattern.search(text), target) for text, target in read_tsv(files.train)]
    seen = {(months[match[1]], date.fromisoformat(target).month) for match, target in found if match}
    assert seen == {(month, month) for month in range(1, 13)}


def test_no_day_is_in_two_files_and_all_are_in_one(files: DemoFiles) -> None:
    train, valid, test = ({target for _, target in read_tsv(path)} for path in files)
    assert train.isdisjoint(valid | test)
    assert valid.isdisjoint(test)
    assert len(test) == dates.TEST_DAYS
    assert len(valid) == dates.VALID_DAYS
    assert len(train | valid | test) == (date(2100, 1, 1) - date(1900, 1, 1)).days


def test_no_text_has_two_readings(files: DemoFiles) -> None:
    readings = defaultdict(set)
    for text, target in (row for path in files for row in read_tsv(path)):
        readings[normal(text)].add(target)
    assert not [text for text, days in readings.items() if len(days) > 1]


@pytest.mark.parametrize(("first", "days"), [(date(1903, 1, 1), 366), (date(2068, 8, 1), 61)])
def test_no_text_could_have_two_readings(first: date, days: int) -> None:
    """Every form of every locale over a stretch of days: what `write_date` may draw means one day only."""
    readings = defaultdict(set)
    for day in (first + timedelta(days=offset) for offset in range(days)):
        for form in (form for locale in dates.LOCALES for form in dates.forms_of(locale)):
            text = form.write(day)
            if dates.reading_key(text) not in dates.ambiguous_readings():
                readings[normal(text)].add(day)
    assert not [text for text, days in readings.items() if len(days) > 1]


def normal(text: str) -> str:
    """The text in small letters, with Western digits and without leading zeros; year and all."""
    western = "".join(str(unicodedata.digit(letter)) if letter.isdigit() else letter for letter in text)
    return re.sub(r"\b0+(?=\d)", "", western).casefold()


@pytest.mark.parametrize(
    ("text", "is_ambiguous"),
    [("3/11/1918", True), ("03/11/1918", True), ("٣/١١/١٩١٨", True), ("13/11/1918", False), ("1918/11/3", False)],
)
def test_day_or_month_first(text: str, is_ambiguous: bool) -> None:
    assert (dates.reading_key(text) in dates.ambiguous_readings()) == is_ambiguous


def test_every_locale_and_its_own_digits_are_in_the_training_data(files: DemoFiles) -> None:
    texts = [text for text, _ in read_tsv(files.train)]
    assert len(dates.LOCALES) == len(set(dates.LOCALES)) == 25
    for sample in ("November", "нояб", "11月", "11월", "نوامبر", "נובמבר", "marraskuuta", "listopada", "studenoga"):
        assert any(sample in text for text in texts), sample
    for zero in ("0", *dates.ZEROS.values()):
        assert any(zero in text for text in texts), zero


def test_invisible_characters_and_typesetters_spaces_are_gone(files: DemoFiles) -> None:
    # The zero-width non-joiner stays: it is part of the spelling of Persian words, and on their keyboards.
    invisible = re.compile(r"[^\S ]|[\u200b\u200d-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
    for text, _ in read_tsv(files.train):
        assert not invisible.search(text), text


def test_the_same_bytes_every_time(files: DemoFiles, tmp_path: Path) -> None:
    random.seed(99)  # nothing may depend on the generator that the whole process shares
    again = dates.write_data(tmp_path)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in files]
