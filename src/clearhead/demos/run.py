"""A demo from data to result: write the data, train, measure on what was held out, show.

`run_demo` is the order of events. What differs between the two demos is in `Demo`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from rich.console import Console

from clearhead.decoding.translator import Translator
from clearhead.demos.files import DemoFiles, read_tsv
from clearhead.demos.show import Answer, dates_example, pinyin_example, show_attention, show_dates, show_pinyin
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
    show: Callable[[list[Answer], Console], None]
    """Prints the result on the test data."""
    attention_example: Callable[[list[Answer]], str]
    """The test source whose attention is shown."""
    try_next: str
    """A text for the reader's own first translation."""


def dates_demo() -> Demo:
    """Written dates to ISO 8601."""
    from clearhead.demos import dates

    return Demo(
        module=dates,
        task="read dates as people of 25 locales write them, and write them as ISO 8601",
        duration="about 2 minutes on two CPU cores",
        show=show_dates,
        attention_example=dates_example,
        try_next="11 novembre 1918",
    )


def pinyin_demo() -> Demo:
    """Chinese phrases to their pronunciation."""
    from clearhead.demos import pinyin

    return Demo(
        module=pinyin,
        task="pronounce Chinese phrases: a syllable in Latin letters (pinyin) for every character",
        duration="about 10 minutes on two CPU cores",
        show=show_pinyin,
        attention_example=pinyin_example,
        try_next="银行行长",
    )


DEMOS: dict[str, Callable[[], Demo]] = {"dates": dates_demo, "pinyin": pinyin_demo}


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

    translator = Translator.load(folder.path)
    answers = answer_test(translator, files.test, console)
    demo.show(answers, console)
    show_attention(translator, demo.attention_example(answers), console)
    console.print(
        f"\n[bold]What next?[/]\n"
        f'  clearhead translate {folder} "{demo.try_next}"\n'
        f"  clearhead evaluate {folder} --pairs {files.test}\n"
        f'  clearhead inspect {folder} "{demo.try_next}" --html attention.html\n'
        f"  clearhead info {folder}",
        soft_wrap=True,
    )
    return None


def prepare_data(demo: Demo, folder: RunFolder, console: Console) -> DemoFiles:
    """The demo's files, in the run folder; written if they are not there yet."""
    directory = folder.path / "pairs"
    files = DemoFiles(*(directory / f"{name}.tsv" for name in DemoFiles._fields))
    if not all(path.exists() for path in files):
        with console.status("writing the data, which takes some 10 seconds …"):
            files = demo.module.write_data(directory)
    train_count, valid_count, test_count = (len(read_tsv(path)) for path in files)
    console.print(
        f"[bold]Data:[/] {train_count:,} pairs to learn from, {valid_count:,} to validate on, and {test_count:,} "
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


def answer_test(translator: Translator, test: Path, console: Console) -> list[Answer]:
    """What the model makes of every line of the test."""
    rows = read_tsv(test)
    sources = [source for source, *_ in rows]
    with console.status(f"translating the {len(rows):,} lines of the test …"):
        outputs = translator.translate(sources)
    return [Answer(source, output, wanted) for (source, *wanted), output in zip(rows, outputs, strict=True)]
