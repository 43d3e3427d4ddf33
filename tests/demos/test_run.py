"""A demo from data to result, with a small stand-in for the data so that it takes seconds."""

import io
import json
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from torch.nn.functional import cross_entropy

from clearhead.decoding.loading import load_generator
from clearhead.decoding.translator import load
from clearhead.demos import dates, pinyin, reference
from clearhead.demos.files import DemoFiles, read_tsv, write_lines, write_tsv
from clearhead.demos.run import DEMOS, Demo, pair_commands, present_answers, run_demo
from clearhead.demos.show import Answer, dates_example, one_for_each_script, show_attention, show_dates, show_pinyin
from clearhead.inspection.heatmap import render_heatmap
from clearhead.recipe import read_recipe
from clearhead.run_folder import RunFolder
from clearhead.toml import to_toml

RECIPE = """
[data]
train = { pairs = "train.tsv" }
valid = { pairs = "valid.tsv" }
max_length = 40
[tokenizer]
kind = "char"
[model]
d_model = 16
d_ff = 32
n_heads = 2
encoder_layers = 1
decoder_layers = 1
[training]
updates = 12
batch_tokens = 512
validate_every = 6
average = 0
[decoding]
beam_size = 1
max_length_ratio = 0.2
max_length_extra = 5
"""


def write_some_dates(directory: Path) -> DemoFiles:
    """A few hundred of the real dates."""
    files = DemoFiles(*(directory / f"{name}.tsv" for name in DemoFiles._fields))
    days = [day for part in dates.split_days() for day in part[:40]]
    for path, part in zip(files, (days[:80], days[80:100], days[100:]), strict=True):
        rows = [(f"Sunday, {day:%B} {day.day}, {day.year}", day.isoformat()) for day in part]
        write_tsv(path, rows)
    return files


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    return Demo(
        module=SimpleNamespace(write_data=write_some_dates, RECIPE=recipe),
        task="read a few dates",
        duration="seconds",
        present=partial(present_answers, show=show_dates, attention_example=dates_example),
        try_next=pair_commands("11 novembre 1918"),
    )


def run(demo: Demo, folder: Path, *, retrain: bool = False) -> str:
    """What the demo prints, training's own lines left out."""
    console = Console(file=io.StringIO(), width=100)
    assert run_demo(demo, folder, retrain=retrain, console=console) is None
    return console.file.getvalue()


def test_the_first_call_trains_and_the_second_shows_the_result_at_once(demo: Demo, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = run(demo, folder)
    for text in (
        "80 pairs to learn from",
        "Training seconds",
        "Result:",
        "Cross-attention",
        f"clearhead translate {folder}",
    ):
        assert text in first
    log = (folder / "metrics.jsonl").read_bytes()
    second = run(demo, folder)
    assert (folder / "metrics.jsonl").read_bytes() == log
    assert "Training is done" in second
    assert first[first.index("Result:") :] == second[second.index("Result:") :]


def test_retrain_begins_anew_with_the_same_result(demo: Demo, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(demo, folder)
    weights = (folder / "model.safetensors").read_bytes()
    began = (folder / "model.safetensors").stat().st_mtime_ns
    run(demo, folder, retrain=True)
    assert (folder / "model.safetensors").stat().st_mtime_ns > began
    assert (folder / "model.safetensors").read_bytes() == weights


def test_a_stopped_training_is_gone_on_with(demo: Demo, tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run(demo, whole)
    run(demo, stopped)
    for path in (stopped / "summary.json", stopped / "model.safetensors", stopped / "pairs" / "test.tsv"):
        path.unlink()  # as if it had been killed before its end
    run(demo, stopped)
    assert (stopped / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    updates = [json.loads(line)["update"] for line in (stopped / "metrics.jsonl").read_text().splitlines()]
    assert max(updates) == 12


def test_the_attention_shown_is_that_of_the_sharpest_head(demo: Demo, tmp_path: Path) -> None:
    run(demo, tmp_path / "run")
    translator = load(tmp_path / "run", device="cpu")
    console = Console(file=io.StringIO(), width=80)
    show_attention(translator, "Sunday, May 5, 1918", console)
    found = translator.inspect("Sunday, May 5, 1918")
    sharpest = max(found.cross.flatten(0, 1), key=lambda weights: float(weights.square().sum()))
    assert render_heatmap(sharpest, found.target_tokens, found.source_tokens) in console.file.getvalue()


@pytest.mark.parametrize("name", list(DEMOS))
def test_recipes_are_right_and_their_demos_complete(name: str) -> None:
    demo = DEMOS[name]()
    recipe = read_recipe(demo.module.RECIPE)
    assert recipe.data.is_text == (name == "reference")
    assert recipe.data.max_length >= 40 or name == "pinyin"
    assert demo.module in (dates, pinyin, reference)
    assert all(command.format(run="runs/x", test="test").startswith("clearhead ") for command in demo.try_next)


def test_no_paragraph_of_the_reference_is_in_two_sets(tmp_path: Path) -> None:
    files = reference.write_data(tmp_path)
    parts = [reference.read_texts(path) for path in files]
    paragraphs = [{p.strip() for text in part for p in text.split("\n\n")} for part in parts]
    assert all(len(part) > 5 for part in parts)
    assert not paragraphs[0] & paragraphs[1]
    assert not paragraphs[0] & paragraphs[2]
    assert not paragraphs[1] & paragraphs[2]
    before = [path.read_bytes() for path in files]
    assert [path.read_bytes() for path in reference.write_data(tmp_path)] == before


def test_the_demo_of_a_language_model_shows_loss_test_and_continuations(tmp_path: Path) -> None:
    tables = read_recipe(reference.RECIPE).model_dump(mode="json", exclude_none=True)
    tables["model"] |= {"d_model": 16, "d_ff": 16, "n_heads": 2, "decoder_layers": 1}
    tables["training"] |= {"updates": 4, "validate_every": 2, "batch_tokens": 256, "device": "cpu"}
    (tmp_path / "small.toml").write_text(to_toml(tables))

    def write_some(directory: Path) -> DemoFiles:
        files = reference.write_data(directory)
        for path, count in zip(files, (8, 3, 3), strict=True):
            write_lines(path, path.read_text(encoding="utf-8").split("\n")[:count])
        return files

    small = SimpleNamespace(write_data=write_some, RECIPE=tmp_path / "small.toml")
    printed = run(replace(DEMOS["reference"](), module=small), tmp_path / "run")
    validations = [r for r in RunFolder(tmp_path / "run").read_metrics() if r["event"] == "validation"]
    assert [r["update"] for r in validations] == [2, 4]
    for text in ("8 documents to learn from", f"{validations[1]['loss']:.3f}", "How it goes on", "clearhead generate"):
        assert text in printed
    found = re.search(r"a loss of ([\d.]+) nats a token, a perplexity of ([\d.]+)", printed)
    assert found
    generator = load_generator(tmp_path / "run", device="cpu")
    texts = reference.read_texts(tmp_path / "run" / "documents" / "test.jsonl")
    losses, place = [], 0
    for text in texts:  # one behind another, cut at every 128th token; each part by itself
        ids = [*generator.tokenizer.encode(text), 2]
        cuts = [0, *range(-place % 128 or 128, len(ids), 128), len(ids)]
        for start, stop in pairwise(cuts):
            labels = torch.tensor(ids[start + 1 : stop + 1])
            logits = generator.model(torch.tensor([ids[start:stop]]))[0, : len(labels)]
            losses += cross_entropy(logits, labels, reduction="none").tolist()
        place += len(ids)
    assert float(found[1]) == pytest.approx(sum(losses) / len(losses), abs=1e-3)


def test_every_pair_fits_the_length_limit_of_its_recipe(tmp_path: Path) -> None:
    longest = max(len(side) for path in pinyin.write_data(tmp_path) for row in read_tsv(path) for side in row[:1])
    assert longest < read_recipe(pinyin.RECIPE).data.max_length


def test_one_example_for_each_script() -> None:
    answers = [
        Answer(text, "", [""])
        for text in ("3 Nov 1918", "4 mai 1920", "3 ноября 1918", "٣ نوفمبر ١٩١٨", "1918年11月3日")
    ]
    assert [answer.source for answer in one_for_each_script(answers)] == [
        "3 Nov 1918",
        "3 ноября 1918",
        "٣ نوفمبر ١٩١٨",
        "1918年11月3日",
    ]


def test_the_pinyin_table_explains_itself() -> None:
    rows = list(pinyin.phrases().items())[:300]
    context_free = pinyin.baseline([phrase for phrase, _ in rows])
    answers = [Answer(phrase, readings[0], list(readings)) for phrase, readings in rows]
    console = Console(file=io.StringIO(), width=160)
    show_pinyin(answers, console)
    printed = console.file.getvalue()
    right = sum(guess in readings for guess, (_, readings) in zip(context_free, rows, strict=True))
    assert "100.00 % of 300 phrases" in printed
    assert f"{100 * right / 300:.2f} % right" in printed
    for heading in ("characters", "the model reads", "the dictionary", "without context", "several readings", "tones"):
        assert heading in printed


@pytest.mark.slow
def test_the_dates_demo_reaches_what_the_readme_promises(tmp_path: Path) -> None:
    demo = DEMOS["dates"]()
    assert run_demo(demo, tmp_path / "run", console=Console(file=io.StringIO())) is None
    rows = read_tsv(tmp_path / "run" / "pairs" / "test.tsv")
    outputs = load(tmp_path / "run", device="cpu").translate([text for text, _ in rows])
    right = sum(output == target for output, (_, target) in zip(outputs, rows, strict=True))
    assert 100 * right / len(rows) >= 99.5
