"""A demo from data to result: write the data, train, measure on what was held out, show.

`run_demo` is the order of events. What differs between the demos is in `Demo`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.markup import escape

from clearhead.decoding.translator import Translator
from clearhead.demos.files import DemoFiles, demo_files, read_tsv
from clearhead.demos.show import Answer, dates_example, pinyin_example, show_attention, show_dates, show_pinyin
from clearhead.demos.show_text import show_language_model
from clearhead.recipe import make_recipe
from clearhead.run_folder import RunFolder
from clearhead.training.run import Outcome, train


@dataclass(frozen=True)
class Demo:
    """What one of the demos is."""

    module: ModuleType
    """Has `write_data(directory)` and `RECIPE`."""
    task: str
    duration: str
    present: Callable[[RunFolder, Path, Console], None]
    """Prints what the run makes of the test file."""
    try_next: Sequence[str]
    """Commands for the reader's own first steps, with `{run}` and `{test}` in them."""
    noun: str = "pairs"
    """What the data are."""
    suffix: str = ".tsv"


def dates_demo() -> Demo:
    """Written dates to ISO 8601."""
    from clearhead.demos import dates

    return Demo(
        module=dates,
        task="read dates as people of 25 locales write them, and write them as ISO 8601",
        duration="about 2 minutes on two CPU cores",
        present=partial(present_answers, show=show_dates, attention_example=dates_example),
        try_next=pair_commands("11 novembre 1918"),
    )


def pinyin_demo() -> Demo:
    """Chinese phrases to their pronunciation."""
    from clearhead.demos import pinyin

    return Demo(
        module=pinyin,
        task="pronounce Chinese phrases: a syllable in Latin letters (pinyin) for every character",
        duration="about 10 minutes on two CPU cores",
        present=partial(present_answers, show=show_pinyin, attention_example=pinyin_example),
        try_next=pair_commands("银行行长"),
    )


def reference_demo() -> Demo:
    """Python's language reference, to go on with."""
    from clearhead.demos import reference

    return Demo(
        module=reference,
        task="go on with a text like Python's language reference: a small GPT",
        duration="takes a few minutes on two CPU cores",
        present=show_language_model,
        try_next=(
            'clearhead generate {run} "The with statement" --sample --temperature 0.7 --seed 2',
            'clearhead inspect {run} "The value of the expression"',
            "clearhead doctor {run}",
            "clearhead info {run}",
        ),
        noun="documents",
        suffix=".jsonl",
    )


def pair_commands(text: str) -> tuple[str, ...]:
    """What to do with a model that translates."""
    return (
        f'clearhead translate {{run}} "{text}"',
        "clearhead evaluate {run} --pairs {test}",
        f'clearhead inspect {{run}} "{text}" --html attention.html',
        "clearhead info {run}",
    )


DEMOS: dict[str, Callable[[], Demo]] = {"dates": dates_demo, "pinyin": pinyin_demo, "reference": reference_demo}


def run_demo(demo: Demo, run_dir: Path, *, retrain: bool = False, console: Console | None = None) -> int | None:
    """Everything that `clearhead demo` does; returns the number of the signal that stopped it, if one did.

    Raises what training raises, and `ConfigError` if the package with the data is not installed.
    """
    console = console or Console(highlight=False)
    folder = RunFolder(run_dir)
    console.print(f"[bold]Task:[/] {demo.task}.")
    files = prepare_data(demo, folder, console)
    if retrain or not is_finished(folder):
        console.print(f"[bold]Training[/] {demo.duration}. Ctrl-C stops it; the same command goes on.")
        outcome = train_demo(demo, folder, files, retrain=retrain)
        if outcome.stopped_by is not None:
            return outcome.stopped_by
    else:
        console.print(f"[bold]Training[/] is done: {folder} holds the model. To train again: --retrain")
    demo.present(folder, files.test, console)
    commands = (command.format(run=folder, test=files.test) for command in demo.try_next)
    console.print("\n[bold]What next?[/]", *(f"  {escape(command)}" for command in commands), sep="\n", soft_wrap=True)
    return None


def prepare_data(demo: Demo, folder: RunFolder, console: Console) -> DemoFiles:
    """The demo's files, in the run folder; written if they are not there yet."""
    directory = folder.path / demo.noun
    files = demo_files(directory, demo.suffix)
    if not all(path.exists() for path in files):
        with console.status("writing the data, which takes some 10 seconds …"):
            files = demo.module.write_data(directory)
    train_count, valid_count, test_count = (path.read_bytes().count(b"\n") for path in files)
    console.print(
        f"[bold]Data:[/] {train_count:,} {demo.noun} to learn from, {valid_count:,} to validate on, and {test_count:,} "
        f"that the model never sees, to test it; in {directory}"
    )
    return files


def is_finished(folder: RunFolder) -> bool:
    """Whether a training came to its end here."""
    return folder.summary.exists() and folder.model.exists()


def train_demo(demo: Demo, folder: RunFolder, files: DemoFiles, *, retrain: bool) -> Outcome:
    """Train the demo's recipe, or go on with a training that was stopped."""
    tables = tomllib.loads(demo.module.RECIPE.read_text(encoding="utf-8"))
    tables["run"] = {**tables.get("run", {}), "dir": str(folder.path)}
    tables["data"]["root"] = str(files.train.parent)
    recipe = make_recipe(tables, origin=demo.module.RECIPE.name)
    return train(recipe, resume=folder.holds_run() and not retrain, overwrite=retrain)


def present_answers(
    folder: RunFolder,
    test: Path,
    console: Console,
    *,
    show: Callable[[list[Answer], Console], None],
    attention_example: Callable[[list[Answer]], str],
) -> None:
    """What a model that translates makes of the test, and what it looks at."""
    translator = Translator.load(folder.path)
    answers = answer_test(translator, test, console)
    show(answers, console)
    show_attention(translator, attention_example(answers), console)


def answer_test(translator: Translator, test: Path, console: Console) -> list[Answer]:
    """What the model makes of every line of the test."""
    rows = read_tsv(test)
    sources = [source for source, *_ in rows]
    with console.status(f"translating the {len(rows):,} lines of the test …"):
        outputs = translator.translate(sources)
    return [Answer(source, output, wanted) for (source, *wanted), output in zip(rows, outputs, strict=True)]
