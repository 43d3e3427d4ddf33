"""What a demo prints of its result."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clearhead.decoding.translator import Translator
from clearhead.evaluation import evaluate_outputs
from clearhead.inspection.heatmap import render_heatmap

SHOWN_DATES, SHOWN_ERRORS = 16, 5


class Answer(NamedTuple):
    """A test line: what the model read, what it wrote, and what would be right."""

    source: str
    output: str
    wanted: list[str]

    @property
    def is_right(self) -> bool:
        """Whether the output is one of the right ones."""
        return self.output in self.wanted


def show_dates(answers: Sequence[Answer], console: Console) -> None:
    """The share of right dates, one example for each script, and some of the errors."""
    wrong = [answer for answer in answers if not answer.is_right]
    console.print(
        f"\n[bold]Result:[/] [bold green]{exact_match(answers):.2f} %[/] of {len(answers):,} dates exactly right "
        f"({len(wrong)} wrong), all of days that are not in the training data in any language."
    )
    print_answers("Some of them, of different scripts", one_for_each_script(answers)[:SHOWN_DATES], console)
    if wrong:
        print_answers("Some that went wrong", wrong[:SHOWN_ERRORS], console)


def one_for_each_script(answers: Sequence[Answer]) -> list[Answer]:
    """The first answer for each kind of letters and digits, by the first word of their Unicode names."""
    found: dict[frozenset[str], Answer] = {}
    for answer in answers:
        characters = [character for character in answer.source if character.isalnum()]
        found.setdefault(frozenset(unicodedata.name(character).split()[0] for character in characters), answer)
    return list(found.values())


def print_answers(title: str, answers: Sequence[Answer], console: Console) -> None:
    """A table of answers."""
    table = Table(title=title, title_justify="left")
    for heading in ("written", "the model reads", "it is"):
        table.add_column(heading)
    for answer in answers:
        style = "green" if answer.is_right else "red"
        table.add_row(escape(answer.source), f"[{style}]{escape(answer.output)}[/]", escape(answer.wanted[0]))
    console.print(table)


def show_pinyin(answers: Sequence[Answer], console: Console) -> None:
    """The share of right phrases beside that of a reader without context, and where the two differ."""
    from clearhead.demos.pinyin import baseline

    alone = [
        Answer(answer.source, output, answer.wanted)
        for answer, output in zip(answers, baseline([answer.source for answer in answers]), strict=True)
    ]
    score, baseline_score = exact_match(answers), exact_match(alone)
    console.print(
        f"\n[bold]Result:[/] [bold green]{score:.2f} %[/] of {len(answers):,} phrases exactly right, none of them in "
        f"the training data.\nReading every character by itself, in its usual way, gets {baseline_score:.2f} % right: "
        f"what attention to the neighbours adds is {score - baseline_score:+.2f} points."
    )
    console.print(
        "\nHow to read the tables: a Chinese character is one syllable. Most have one reading, but some several, and "
        "only the neighbours tell which; the last column lists them, the usual one first. The marks on the vowels are "
        "tones: ā high, á rising, ǎ low, à falling; a syllable without a mark is unstressed."
    )
    both = list(zip(answers, alone, strict=True))
    print_readings(
        "Where context helped: the model is right, the reader without context is not",
        [(model, other) for model, other in both if model.is_right and not other.is_right][:8],
        console,
    )
    print_readings(
        "Where both are right",
        [(model, other) for model, other in both if model.is_right and other.is_right][:3],
        console,
    )
    print_readings("Where the model is wrong", [pair for pair in both if not pair[0].is_right][:SHOWN_ERRORS], console)


def print_readings(title: str, pairs: Sequence[tuple[Answer, Answer]], console: Console) -> None:
    """A table of the model's reading, the dictionary's, and that without context."""
    from clearhead.demos.pinyin import polyphonic

    table = Table(title=title, title_justify="left")
    for heading in ("characters", "the model reads", "the dictionary", "without context", "several readings"):
        table.add_column(heading)
    for model, alone in pairs:
        texts = [f"[{'green' if answer.is_right else 'red'}]{escape(answer.output)}[/]" for answer in (model, alone)]
        notes = ", ".join(polyphonic(model.source))
        table.add_row(escape(model.source), texts[0], escape(" or ".join(model.wanted)), texts[1], notes)
    console.print(table)


def dates_example(answers: Sequence[Answer]) -> str:
    """A right answer whose words stand in another order than the numbers they become."""
    english = (answer.source for answer in answers if answer.is_right and re.match(r"\w+day, \w+ \d", answer.source))
    return next(english, answers[0].source)


def pinyin_example(answers: Sequence[Answer]) -> str:
    """A right answer that only the context gives."""
    from clearhead.demos.pinyin import baseline

    sources = [answer.source for answer in answers if answer.is_right and len(answer.source) > 2]
    outputs = {answer.source: answer.output for answer in answers}
    hard = (source for source, alone in zip(sources, baseline(sources), strict=True) if outputs[source] != alone)
    return next(hard, answers[0].source)


def show_attention(translator: Translator, source: str, console: Console) -> None:
    """Where the decoder looks in the source while it writes each token: the sharpest head of its cross-attention."""
    inspection = translator.inspect(source)
    console.print(
        f"\n[bold]Cross-attention[/] for {escape(source)}: a line for each token it wrote; "
        "the darker a cell, the more it looked at the source token above it."
    )
    weights = inspection.weights("cross", *inspection.sharpest("cross"))
    console.print(render_heatmap(weights, *inspection.labels("cross")), markup=False, soft_wrap=True)


def exact_match(answers: Sequence[Answer]) -> float:
    """Percent of right answers."""
    scores = evaluate_outputs(
        [answer.output for answer in answers], [answer.wanted for answer in answers], metrics=["exact_match"]
    )
    return scores.exact_match or 0.0
