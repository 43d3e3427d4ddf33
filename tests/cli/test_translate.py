"""`clearhead translate`: line for line, the same by every way in, and nothing half-written."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import clearhead
from clearhead.run_folder import RunFolder
from clearhead.text.tokenizers import train_tokenizer


@pytest.fixture(scope="session")
def lines() -> list[str]:
    """60 lines of 1 to 9 letters, in no order of length, some of them blank."""
    generator = random.Random(3)
    drawn = ["".join(generator.choices("abcdefgh", k=generator.randint(1, 9))) for _ in range(60)]
    return ["" if place in (4, 5, 31) else line for place, line in enumerate(drawn)]


@pytest.fixture(scope="session")
def expected(trained, lines) -> list[str]:
    """What the package makes of each line, in a call of its own."""
    translator = clearhead.load(trained)
    return [translator.translate(line) for line in lines]


def as_file(path: Path, lines: list[str]) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


# case G12
def test_the_same_by_every_way_in(command, trained, lines, expected, tmp_path):
    some, wanted = lines[:20], expected[:20]
    file = as_file(tmp_path / "in.txt", some)
    packed = tmp_path / "in.txt.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    ways = {
        "file": command("translate", trained, "-i", file),
        "packed": command("translate", trained, "-i", packed),
        "standard input": command("translate", trained, stdin=file.read_bytes()),
        "a dash": command("translate", trained, "-i", "-", stdin=file.read_bytes()),
        "arguments": command("translate", trained, *some),
    }
    for way, outcome in ways.items():
        assert outcome.code == 0, way
        assert outcome.lines == wanted, way
    assert clearhead.load(trained).translate(some) == wanted


# case G12
def test_the_same_in_a_process_of_its_own(trained, lines, expected):
    arguments = [sys.executable, "-m", "clearhead", "translate", str(trained)]
    text = "".join(f"{line}\n" for line in lines[:20]).encode()
    outcome = subprocess.run(arguments, input=text, capture_output=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.decode() == "".join(f"{line}\n" for line in expected[:20])


# case G8
def test_output_lines_are_in_the_order_of_the_input(command, trained, lines, expected, tmp_path):
    file, output = as_file(tmp_path / "in.txt", lines), tmp_path / "out.txt"
    assert len(set(expected)) > 40
    for batch_size in ("1", "7", "64"):
        outcome = command("translate", trained, "-i", file, "-o", output, "--batch-size", batch_size)
        assert (outcome.code, outcome.out) == (0, "")
        assert output.read_bytes().decode().split("\n") == [*expected, ""]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


# case D1
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_only_a_line_feed_ends_a_line(command, trained, end, last, tmp_path):
    texts = ["a\u2028b", "b\x85a", "\x0bcab", "fe\x0cd", "\u2029", "ha\x1cg", "bad\rhead", "", "cab"]
    data = (end.join(texts) + (end if last else "")).encode()
    wanted = clearhead.load(trained).translate([text.replace("\r", " ") for text in texts])
    assert command("translate", trained, stdin=data).lines == wanted
    (tmp_path / "in.txt").write_bytes(data)
    command("translate", trained, "-i", tmp_path / "in.txt", "-o", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_bytes().decode() == "".join(f"{line}\n" for line in wanted)


# cases D4, D5
@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (b"\n", 1),
        (b"\n\n\n", 3),
        (b"  \n\xc2\xa0\n\xe2\x80\x8b", 3),
        (b"bad\n\nhead\n", 3),
        (b"bad\n\nhead", 3),
        (b"\xef\xbb\xbf\nbad", 2),
    ],
)
def test_a_blank_line_gives_a_blank_line(command, trained, data, count):
    translator = clearhead.load(trained)
    outcome = command("translate", trained, stdin=data)
    assert outcome.code == 0
    assert len(outcome.lines) == count
    texts = data.decode("utf-8-sig").split("\n")[:count]
    assert outcome.lines == [translator.translate(text) for text in texts]
    for text, line in zip(texts, outcome.lines, strict=True):
        assert line == "" or text in ("bad", "head")


def test_several_outputs_a_line(command, trained, lines):
    some = lines[:8]
    wanted = clearhead.load(trained).hypotheses(some, n_best=3)
    outcome = command("translate", trained, *some, "--n-best", "3")
    assert outcome.lines == [one.text for found in wanted for one in found]
    assert len(outcome.lines) == 24  # blank lines too


def test_json_lines(command, trained, lines):
    some = lines[:8]
    wanted = clearhead.load(trained).hypotheses(some, n_best=2)
    outcome = command("translate", trained, *some, "--n-best", "2", "--json")
    found = [json.loads(line) for line in outcome.lines]
    assert [one["line"] for one in found] == [number for number in range(1, 9) for _ in range(2)]
    for one, hypothesis in zip(found, [one for outputs in wanted for one in outputs], strict=True):
        assert one["text"] == hypothesis.text
        assert one["ids"] == hypothesis.ids
        assert one["tokens"] == hypothesis.tokens
        assert one["log_probability"] == pytest.approx(hypothesis.log_probability, abs=1e-4)
        assert one["score"] == pytest.approx(hypothesis.score, abs=1e-4)
        assert one["hit_length_limit"] == hypothesis.hit_length_limit
        assert one["source_cut"] is False


# case G4
def test_scores_are_those_of_the_score_command(command, trained, lines, tmp_path):
    some = [line for line in lines[:10] if line]
    outcome = command("translate", trained, *some, "--n-best", "2", "--scores")
    fields = [line.split("\t") for line in outcome.lines]
    pairs = as_file(tmp_path / "pairs.tsv", [f"{some[i // 2]}\t{text}" for i, (_, _, text) in enumerate(fields)])
    scored = [line.split("\t") for line in command("score", trained, "--pairs", pairs).lines]
    assert len(scored) == len(fields) == 2 * len(some)
    for (score, log_probability, text), (other, tokens, _) in zip(fields, scored, strict=True):
        assert float(log_probability) == pytest.approx(float(other), abs=3e-4)
        assert int(tokens) == len(text) + 1
        assert float(score) == pytest.approx(float(other) / ((6 + len(text)) / 6) ** 0.6, abs=3e-4)


def test_what_was_cut_is_reported_and_output_stays_clean(command, trained):
    outcome = command("translate", trained, "badhead", "", "--max-length-ratio", "0", "--max-length-extra", "1")
    assert outcome.code == 0
    assert len(outcome.lines) == 2
    assert len(outcome.lines[0]) == 1
    assert outcome.err == "line 1: the output was cut at its length limit of 1 tokens\n"
    long = command("translate", trained, "ab" * 600, "--max-length-ratio", "0", "--beam-size", "1")
    assert "line 1: the source is too long; its end was not read\n" in long.err


def test_fewer_outputs_than_asked_for_shift_no_line(command, trained):
    """Behind a prefix as long as the limit only the end can come: one output, and two blank lines to keep count."""
    limit = ["--max-length-ratio", "0", "--max-length-extra", "1"]
    options = ["--prefix", "BADHEAD", "--n-best", "3", *limit]
    assert command("translate", trained, "bad", "fed", *options).lines == ["BADHEAD", "", ""] * 2
    scored = command("translate", trained, "bad", "fed", *options, "--scores").lines
    assert scored[1:3] == ["-inf\t-inf\t"] * 2
    assert [
        json.loads(line)["line"] for line in command("translate", trained, "bad", "fed", *options, "--json").lines
    ] == [
        1,
        2,
    ]


# case G13
def test_prefixes(command, trained, tmp_path):
    translator = clearhead.load(trained)
    texts, prefixes = ["bad", "head", "fed"], ["B", "", "FEED"]
    file = as_file(tmp_path / "prefixes.txt", prefixes)
    outcome = command("translate", trained, *texts, "--prefixes", file)
    assert outcome.lines == translator.translate(texts, prefixes=prefixes)
    assert all(line.startswith(prefix) for line, prefix in zip(outcome.lines, prefixes, strict=True))
    assert command("translate", trained, *texts, "--prefix", "CA").lines == translator.translate(texts, prefixes="CA")


def test_sampling_is_repeated_by_its_seed(command, trained, lines):
    options = ["--sample", "--temperature", "1.5", "--n-best", "4", "--seed"]
    first = command("translate", trained, *lines[:10], *options, "3")
    assert first.out == command("translate", trained, *lines[:10], *options, "3", "--batch-size", "1").out
    assert first.out != command("translate", trained, *lines[:10], *options, "4").out
    greedy = command("translate", trained, *lines[:10], "--beam-size", "1")
    assert command("translate", trained, *lines[:10], "--sample", "--top-k", "1").out == greedy.out


def test_the_recipes_options_are_the_defaults(command, trained, lines, expected):
    assert command("translate", trained, *lines).lines == expected
    assert command("translate", trained, *lines, "--beam-size", "3").lines == expected
    assert command("translate", trained, *lines, "--beam-size", "1").lines != expected


@pytest.fixture
def broken(trained, tmp_path) -> Path:
    """A copy of the run folder, to spoil."""
    return shutil.copytree(trained, tmp_path / "broken")


# one line in, one line out: whatever the model writes
def test_line_ends_in_an_output_are_written_as_spaces(command, broken, lines):
    train_tokenizer("char", ["\n\rCDEFGH"]).save(RunFolder(broken).target_tokenizer)
    texts = clearhead.load(broken).translate(lines)
    assert any("\n" in text for text in texts)
    assert any("\r" in text for text in texts)
    outcome = command("translate", broken, *lines)
    assert outcome.lines == [text.replace("\n", " ").replace("\r", " ") for text in texts]
    assert [json.loads(line)["text"] for line in command("translate", broken, *lines, "--json").lines] == texts


def assert_mistake(outcome, *words):
    """Exit code 2, nothing on standard output, one message without a traceback."""
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("clearhead: error: ")
    assert "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # case S6
        (["bad", "--n-best", "9", "--beam-size", "3"], ["n_best = 9", "beam_size = 3"]),
        (["bad", "-i", "in.txt"], ["1 texts", "in.txt"]),
        (["bad", "--prefix", "A", "--prefixes", "in.txt"], ["--prefix and --prefixes"]),
        (["bad", "--prefix", "ä"], ["begin with 'ä'"]),
        (["bad", "head", "--prefixes", "one.txt"], ["line 2 has no prefix"]),
        (["--prefixes", "one.txt"], ["prefix 1 has no line"]),
        (["-i", "no.txt"], ["no.txt", "no such file"]),
        (["-i", "."], ["can't be read"]),
        (["-i", "latin-1.txt"], ["latin-1.txt, line 2", "0xe9"]),
        (["bad", "--temperature", "0"], ["temperature = 0"]),
        (["bad", "--beam-size", "0"], ["beam_size = 0"]),
        (["bad", "--device", "abacus"], ["'abacus'"]),
        (["bad", "-o", "no/such/folder/out.txt"], ["no/such/folder/out.txt"]),
        (["bad", "-o", "folder"], ["folder"]),
    ],
)
def test_mistakes(command, trained, tmp_path, monkeypatch, arguments, words):
    (tmp_path / "one.txt").write_bytes(b"A\n")
    (tmp_path / "in.txt").write_bytes(b"bad\n")
    (tmp_path / "latin-1.txt").write_bytes(b"bad\ncaf\xe9\n")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    assert_mistake(command("translate", trained, *arguments), *words)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["recipe.toml", "config.json", "source.json", "target.json", "model.safetensors"])
@pytest.mark.parametrize("how", ["missing", "cut short", "of another kind"])
def test_a_run_folder_that_is_broken(command, broken, name, how):
    path = broken / name
    match how:
        case "missing":
            path.unlink()
        case "cut short":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        case "of another kind":
            path.write_bytes(b"\x00\xff" * 40)
    assert_mistake(command("translate", broken, "bad"), str(broken))


def test_no_run_folder(command, tmp_path):
    assert_mistake(command("translate", tmp_path / "none", "bad"), "none", "no such run folder")
    assert_mistake(command("translate", tmp_path, "bad"), "no recipe.toml")


def test_tokenizers_of_another_run(command, broken):
    train_tokenizer("byte", []).save(RunFolder(broken).source_tokenizer)
    assert_mistake(command("translate", broken, "bad"), "source.json has 260 tokens", "only 12")


def test_an_output_file_is_whole_or_untouched(command, trained, tmp_path):
    """The bad byte comes after lines that have been translated already."""
    file, output = tmp_path / "in.txt", tmp_path / "out.txt"
    file.write_bytes(b"bad\n" * 40 + b"caf\xe9\n")
    options = ["-i", file, "-o", output, "--batch-size", "1", "--beam-size", "1"]
    assert_mistake(command("translate", trained, *options), "in.txt, line 41")
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    output.write_bytes(b"what was there\n")
    assert_mistake(command("translate", trained, *options), "in.txt, line 41")
    assert output.read_bytes() == b"what was there\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


@pytest.mark.skipif(os.name != "posix", reason="named pipes are POSIX's")
def test_a_pipe_is_written_to_and_not_replaced(command, trained, tmp_path):
    """The same for /dev/null, which root could replace by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        assert command("translate", trained, "bad", "", "-o", pipe).code == 0
        written = os.read(end, 1000).decode()
    finally:
        os.close(end)
    assert written == clearhead.load(trained).translate("bad") + "\n\n"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_each_line_of_a_pipe_is_answered_as_it_comes(trained):
    """Nobody has to close the pipe, or to fill it, to see what became of a line."""
    arguments = [sys.executable, "-m", "clearhead", "translate", str(trained), "--beam-size", "1"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in ("bad", "head"):
            process.stdin.write(f"{text}\n".encode())
            process.stdin.flush()
            answer = process.stdout.readline().decode().rstrip("\n")
            assert answer == clearhead.load(trained).translate(text, beam_size=1)
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0
