"""The list of topics, and how results are shown and drawn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clearhead.cli import app as cli
from clearhead.errors import ConfigError
from clearhead.experiments import report, topics
from clearhead.experiments.plot import draw
from clearhead.experiments.result import Effort, Table, judge, power_of

DOCS = Path(__file__).parents[2] / "docs" / "explain.md"


@pytest.mark.parametrize("topic", topics.all_topics(), ids=lambda topic: topic.name)
def test_every_topic_says_what_it_is_about(topic: topics.Topic) -> None:
    assert topics.find_topic(topic.name) == topic
    assert topic.claim.endswith((".", ")."))
    assert topic.formula
    assert topic.title


def test_a_topic_that_there_is_not() -> None:
    with pytest.raises(ConfigError, match="did you mean scaling"):
        topics.find_topic("scalling")
    with pytest.raises(ConfigError, match="the topics are scaling, heads"):
        topics.find_topic("xyz")


def test_the_list_names_every_topic(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(["explain"])
    assert not leaving.value.code
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [topic.name for topic in topics.all_topics()]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["scaling", "--all"], "either a topic"),
        (["--plot", "x.png"], "name it"),
        (["nothing"], "no topic 'nothing'"),
        (["masks", "--seed", str(10**30)], "--seed"),
        (["masks", "--plot", "x.nonsense"], "x.nonsense"),
    ],
)
def test_mistakes_are_said(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path, monkeypatch):
    if "x.nonsense" in arguments:
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as leaving:
        cli.main(["explain", *arguments])
    assert leaving.value.code == 2
    assert says in capsys.readouterr().err


def test_a_topic_in_the_terminal_and_as_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    for options in ([], ["--markdown"]):
        with pytest.raises(SystemExit):
            cli.main(["explain", "masks", *options])
        shown = " ".join(capsys.readouterr().out.split())
        assert "Claim" in shown
        assert "masked_fill" in shown
        assert "forgotten" in shown
        assert re.search(r"Verdict: holds in part", shown)


def test_the_same_seed_gives_the_same_numbers() -> None:
    topic = topics.find_topic("scaling")
    first, second, other = (topic.run(Effort.QUICK, seed).tables for seed in (1, 1, 2))
    assert first == second != other


def test_a_table_in_markdown() -> None:
    table = Table("", ("a", "b"), [("x", 12_345), ("y", 0.00001)])
    assert report.markdown_table(table) == "| a | b |\n| --- | ---: |\n| x | 12,345 |\n| y | 1.0e-05 |"


def test_answers() -> None:
    assert [judge(False), judge(True), judge(True, True)] == ["does not hold here", "holds", "holds in part"]
    assert power_of([2, 4, 8], [12, 48, 192]) == pytest.approx(2)


def test_a_chart_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "new" / "chart.png"
    draw(topics.find_topic("scaling").run(Effort.QUICK).chart, path)
    with image.open(path) as picture:
        assert picture.size == (700, 450)
        assert len(picture.convert("RGB").getcolors(2**16)) > 50


def test_the_page_shows_topics_in_their_order() -> None:
    shown = re.findall(r"^## (\S+):", DOCS.read_text("utf-8"), re.MULTILINE)
    assert shown == [topic.name for topic in topics.all_topics()]
