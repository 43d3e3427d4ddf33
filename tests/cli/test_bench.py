"""`clearhead bench`: how fast a run translates on this machine."""

from __future__ import annotations

import json

import clearhead

SOURCES = ["bad", "", "head", "  ", "cabbage", "fed"]


def test_json_says_what_was_measured(command, trained, tmp_path):
    source = tmp_path / "source.txt"
    source.write_bytes("".join(f"{text}\n" for text in SOURCES).encode())
    outcome = command("bench", trained, "--source", source, "--beam-size", "2", "--rounds", "1", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    texts = ["bad", "head", "cabbage", "fed"]  # blank lines ask nothing of a model
    outputs = clearhead.load(trained).hypotheses(texts, beam_size=2)
    assert found["sentences"] == len(texts)
    assert found["output_tokens"] == sum(len(best.ids) + 1 for best, *_ in outputs)
    assert 0 < found["share_of_peak"] < 1
    first_two = command("bench", trained, "--source", source, "--lines", "2", "--rounds", "1", "--json")
    assert json.loads(first_two.out)["sentences"] == 2


def test_the_table_has_a_line_for_each_figure(command, trained, tmp_path):
    source = tmp_path / "source.txt"
    source.write_bytes(b"bad\nhead\n")
    outcome = command("bench", trained, "--source", source, "--rounds", "1")
    assert outcome.code == 0
    for name in ("sentences a second", "output tokens a second", "one sentence alone", "of the matrix-product peak"):
        assert name in outcome.out


def test_mistakes(command, trained, tmp_path):
    blank, source = tmp_path / "blank.txt", tmp_path / "source.txt"
    blank.write_bytes(b"\n \n")
    source.write_bytes(b"bad\n")
    for arguments, word in [
        (["--source", blank], "no line to translate"),
        (["--source", tmp_path / "no.txt"], "no such file"),
        (["--source", source, "--beam-size", "0"], "beam_size = 0"),
        ([], "pairs.tsv"),  # the recipe's pairs, of which the validation set would be a part, are gone
    ]:
        outcome = command("bench", trained, *arguments)
        assert (outcome.code, outcome.out) == (2, ""), arguments
        assert outcome.err.startswith("clearhead: error: ")
        assert word in outcome.err
