"""`clearhead inspect`: a text's maps, and heads over a data set."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from rich.cells import cell_len

import clearhead
from clearhead.run_folder import RunFolder


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("badge\tBADGE\ncab\tCAB\nface\tFACE\n", "utf-8")
    return path


def test_a_text_in_the_terminal(command, trained):
    found = clearhead.load(trained).inspect("badge")
    outcome = command("inspect", trained, "badge")
    assert outcome.code == 0
    assert outcome.lines[:2] == ["badge", f"→ {found.translation}"]
    assert outcome.lines[2] == f"log-probability {found.log_probability:.4f}"
    layer, head = found.sharpest()
    assert f"cross attention, layer {layer}, head {head}" in outcome.out
    header = outcome.lines.index("     b a d g e </s>")
    rows = outcome.lines[header + 1 : header + 1 + len(found.target_tokens)]
    assert [row.split(" ")[0] for row in rows] == found.target_tokens
    for row, weights in zip(rows, found.cross[layer, head], strict=True):
        darkest = max(range(6), key=lambda key: weights[key])
        if weights[darkest] > 0.9:
            assert row[5 + 2 * darkest] == "█"
    table = outcome.lines[-len(found.steps) :]
    for line, step, place in zip(table, found.steps, found.alignment, strict=True):
        name = re.escape(found.source_tokens[place])
        assert re.match(rf"{re.escape(step.token)}\s+{step.probability:.4f}\s+{name} \({place}\)", line)


def test_which_map_is_shown(command, trained):
    outcome = command("inspect", trained, "badge", "--kind", "decoder", "--layer", 0)
    assert "decoder attention, mean of the heads of layer 0" in outcome.out
    assert re.search(r"^ +<s> [A-H ]+$", outcome.out, re.MULTILINE)
    assert (
        "encoder attention, layer 0, head 1"
        in command("inspect", trained, "badge", "--kind", "encoder", "--layer", 0, "--head", 1).out
    )


def test_another_translation_is_looked_into(command, trained):
    outcome = command("inspect", trained, "badge", "--target", "HAG")
    assert outcome.lines[1] == "→ HAG"
    expected = clearhead.load(trained).score(["badge"], ["HAG"])[0].log_probability
    assert float(outcome.lines[2].split()[1]) == pytest.approx(expected, abs=1e-3)


def test_what_was_cut_is_reported_and_output_stays_clean(command, trained):
    outcome = command("inspect", trained, "ab" * 600, "--target", "AB")
    assert outcome.code == 0
    assert outcome.err == "the source is too long; what comes after 1,024 tokens was not read\n"
    assert "too long" not in outcome.out
    assert command("inspect", trained, "ab" * 512, "--target", "AB").err == ""


def test_files(command, trained, tmp_path):
    page, map_, grid = (tmp_path / name for name in ("page.html", "map.png", "grid.svg"))
    assert command("inspect", trained, "badge", "--html", page, "--png", map_).code == 0
    assert page.read_text("utf-8") == clearhead.load(trained).inspect("badge").to_html()
    assert map_.read_bytes().startswith(b"\x89PNG")
    assert command("inspect", trained, "badge", "--kind", "encoder", "--png", grid, "--grid").code == 0
    assert "encoder self-attention" in grid.read_text("utf-8") or b"<svg" in grid.read_bytes()


def test_a_head_switched_off(command, trained):
    plain = command("inspect", trained, "badge").out
    without = command("inspect", trained, "badge", "--without", "cross.0.0", "--without", "cross.0.1").out
    assert plain != without
    assert command("inspect", trained, "badge").out == plain


def test_heads_over_data(command, trained, pairs):
    outcome = command("inspect", trained, "--heads", "--by", "on_end", "--pairs", pairs)
    assert outcome.code == 0
    assert "over 3 sources" in outcome.lines[0]
    rows = [line.split() for line in outcome.lines if re.match(r"(encoder|decoder|cross)\.0\.[01] ", line)]
    assert len(rows) == 6
    assert all(cell_len(line) <= 80 for line in outcome.lines)
    shares = [float(row[7]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert {row[8] for row in rows} == {"0.000"}
    assert "over 2 sources" in command("inspect", trained, "--heads", "--pairs", pairs, "--lines", 2).lines[0]


def test_heads_switched_off_one_by_one(command, trained, pairs):
    outcome = command("inspect", trained, "--ablate-heads", "--pairs", pairs, "--metric", "exact_match")
    assert outcome.code == 0
    rows = [re.findall(r"[\w.+-]+", line) for line in outcome.lines if re.search(r"\d\.\d{4}", line)]
    assert rows[0][0] == "none"
    assert {row[0] for row in rows[1:]} == {
        f"{kind}.0.{head}" for kind in ("encoder", "decoder", "cross") for head in (0, 1)
    }
    losses = [float(row[1]) for row in rows[1:]]
    assert losses == sorted(losses, reverse=True)
    for row in rows:
        assert float(row[1]) - float(rows[0][1]) == pytest.approx(float(row[2]), abs=2e-4)
    assert "exact_match" not in command("inspect", trained, "--ablate-heads", "--pairs", pairs).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a text, or --heads, --ablate-heads or --training"),
        (["--training"], "metrics.jsonl: nothing is recorded yet"),
        (["badge", "--training"], "leave out texts, --html, --heads"),
        (["--training", "--heads"], "leave out texts, --html, --heads"),
        (["badge", "--kind", "self"], "no attention of the kind 'self'; choose one of encoder, decoder, cross"),
        (["badge", "--layer", "7"], "cross attention has no layer 7: they are 0 to 0"),
        (["badge", "--layer", "0", "--head", "2"], "no head 2: they are 0 to 1"),
        (["badge", "--head", "1"], "Give --layer too"),
        (["badge", "--without", "cross.0.9"], "there is no head 'cross.0.9'"),
        (["badge", "--grid"], "--png FILE"),
        (["badge", "--png", "map.xyz"], "ends in one of"),
        (["badge", "--html", "no-such-folder/page.html"], "no-such-folder"),
        (["badge", "--html", ""], "that is a folder"),
        (["badge", "--html", "/"], "that is a folder"),
        (["badge", "--png", "no-such-folder/map.png"], "no-such-folder"),
        ([" "], "blank"),
        (["--heads", "--by", "beauty"], "--by beauty: choose one of entropy"),
        (["--ablate-heads", "--metric", "blue"], "did you mean 'bleu'"),
        (["--heads", "--pairs", "no-such-file.tsv"], "no-such-file.tsv: no such file"),
    ],
)
def test_mistakes_are_explained(command, trained, arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    outcome = command("inspect", trained, *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(tmp_path.iterdir())


def test_no_such_run(command, tmp_path):
    assert command("inspect", tmp_path / "none", "a").code == 2


@pytest.fixture
def recorded(trained, tmp_path):
    """The run with a log of 40 updates, whose learning rate was too high for a while."""
    folder = RunFolder(shutil.copytree(trained, tmp_path / "run"))
    ratios = {10: 0.001, 20: 0.123, 30: 0.07, 40: 0.002}
    records = [
        record
        for update, ratio in ratios.items()
        for record in (
            {"event": "training", "update": update, "loss": 1.5, "plain": 10 / update, "seconds": 6.0 * update},
            {"event": "diagnostics", "update": update, "update_ratio/encoder.0": ratio, "heads": 6},
        )
    ]
    folder.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_the_training_in_the_terminal(command, recorded):
    outcome = command("inspect", recorded, "--training")
    assert outcome.code == 0
    assert outcome.lines[0] == f"{recorded}: 40 updates in 4.0 minutes, not finished"
    (loss,) = [line for line in outcome.lines if line.startswith("training ")]
    assert re.search(r"█ +▃ +▁ +▁ +1 +0\.25", loss)
    warnings = [line for line in outcome.lines if line.startswith("at update")]
    assert len(warnings) == 1
    assert warnings[0].startswith("at update 20: one update moved the weights of encoder.0 by 12.3% of their size")


def test_a_training_without_weights_or_diagnostics(command, recorded):
    """Before the first validation there are no weights; [diagnostics] are recorded only if asked for."""
    recorded.model.unlink()
    lines = recorded.metrics.read_text().splitlines()[::2]
    recorded.metrics.write_text("\n".join(lines))
    outcome = command("inspect", recorded, "--training")
    assert outcome.code == 0
    assert outcome.lines[-1] == (
        "Nothing was recorded inside the model: [diagnostics] every = 100 in the recipe does that."
    )


def test_the_training_as_a_picture(command, recorded, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install 'clearhead[plot]'")
    picture = tmp_path / "training.svg"
    outcome = command("inspect", recorded, "--training", "--png", picture)
    assert outcome.code == 0
    assert outcome.lines[0] == f"{picture}: written"
    assert b"<svg" in picture.read_bytes()
    assert command("inspect", recorded, "--training", "--png", tmp_path / "training.xyz").code == 2


@pytest.mark.parametrize("value", [None, "x", [1]])
def test_a_log_without_a_number_is_refused(command, recorded, tmp_path, value):
    records = [{"event": "training", "update": update, "loss": value, "seconds": value} for update in (10, 20)]
    recorded.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    for more in ([], ["--png", tmp_path / "training.png"]):
        outcome = command("inspect", recorded, "--training", *more)
        assert outcome.code == 2
        assert "metrics.jsonl: what is recorded there are no numbers" in outcome.err
    assert not (tmp_path / "training.png").exists()


def test_how_an_imported_model_was_trained_is_not_known(command, tmp_path):
    (tmp_path / "imported.json").write_text('{"family": "gpt2", "source": "gpt2", "control": {}}')
    outcome = command("inspect", tmp_path, "--training")
    assert outcome.code == 2
    assert "how it was trained was not recorded" in outcome.err
