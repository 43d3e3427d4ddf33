"""`clearhead score`: how likely the model finds given pairs."""

from __future__ import annotations

import json
import math

import pytest

import clearhead

SOURCES = ["bad", "head", "", "cabbage", "fed"]
TARGETS = ["BAD", "", "HEAD", "CABBAGE", "DEAF"]


@pytest.fixture
def files(tmp_path):
    """Sources, targets, and both in one file."""
    source, target, pairs = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "ab.tsv"
    source.write_bytes("".join(f"{text}\n" for text in SOURCES).encode())
    target.write_bytes("".join(f"{text}\n" for text in TARGETS).encode())
    pairs.write_bytes("".join(f"{a}\t{b}\n" for a, b in zip(SOURCES, TARGETS, strict=True)).encode())
    return source, target, pairs


def test_each_pair_has_its_line(command, trained, files):
    source, target, pairs = files
    wanted = clearhead.load(trained).score(SOURCES, TARGETS)
    outcome = command("score", trained, "--source", source, "--target", target)
    assert (outcome.code, outcome.err) == (0, "")
    for line, score, text in zip(outcome.lines, wanted, TARGETS, strict=True):
        log_probability, tokens, perplexity = line.split("\t")
        assert float(log_probability) == pytest.approx(score.log_probability, abs=2e-4)
        assert int(tokens) == score.tokens == len(text) + 1
        assert float(perplexity) == pytest.approx(math.exp(-score.log_probability / score.tokens), rel=1e-3)
    assert command("score", trained, "--pairs", pairs).out == outcome.out


def test_json_lines(command, trained, files):
    wanted = clearhead.load(trained).score(SOURCES, TARGETS)
    found = [json.loads(line) for line in command("score", trained, "--pairs", files[2], "--json").lines]
    assert [one["tokens"] for one in found] == [score.tokens for score in wanted]
    assert [one["log_probability"] for one in found] == pytest.approx([one.log_probability for one in wanted], abs=1e-4)
    for one in found:
        assert one["perplexity"] == pytest.approx(math.exp(-one["log_probability"] / one["tokens"]))


def test_a_source_that_is_not_read_to_its_end_is_reported(command, trained, tmp_path):
    (tmp_path / "ab.tsv").write_text("bad\tBAD\n" + "ab" * 600 + "\tAB\n", encoding="utf-8")
    outcome = command("score", trained, "--pairs", tmp_path / "ab.tsv")
    assert len(outcome.lines) == 2
    assert outcome.err == "line 2: the source is too long; its end was not read\n"


def test_mistakes(command, trained, files, tmp_path):
    source, target, pairs = files
    short = tmp_path / "short.txt"
    short.write_bytes(b"BAD\n")
    for arguments, word in [
        ([], "--pairs"),
        (["--pairs", pairs, "--source", source, "--target", target], "--pairs"),
        (["--source", source], "source"),
        (["--target", target], "target"),
        (["--source", source, "--target", tmp_path / "no.txt"], "no.txt"),
        (["--pairs", source], 'no format is known for ".txt"'),
        # case D2
        (["--source", source, "--target", short], "5 lines"),
        (["--pairs", pairs, "--device", "abacus"], "'abacus'"),
    ]:
        outcome = command("score", trained, *arguments)
        assert (outcome.code, outcome.out) == (2, ""), arguments
        assert outcome.err.startswith("clearhead: error: ")
        assert word in outcome.err
    assert command("score", tmp_path / "none", "--pairs", pairs).code == 2
