"""Whatever is typed behind `clearhead`, the answer is help or one error message, never a traceback."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearhead.cli import app as cli

COMMANDS = ["train", "translate", "evaluate", "score", "info", "inspect", "doctor", "explain", "demo"]

# What the operating system can hand over: any text without NUL.
words = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12)
options = st.one_of(
    words.map("--".__add__),
    st.sampled_from(
        ["--set", "--json", "--resume", "--beam-size", "--n-best", "--source", "--target", "-", "--", "-h"]
    ),
)
values = st.one_of(
    words,
    st.sampled_from(["0", "-1", "1e999", "nan", "training.updates=x", "a.b.c=1", "=", ".", "..", "/", "//", "pinyin"]),
    st.integers().map(str),
)
arguments = st.lists(st.one_of(options, values), max_size=5)


def run_in_process(command_line: list[str]) -> tuple[int, str]:
    """The exit code and standard error of the real entry point, with nothing on standard input."""
    streams = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(3))
    try:
        cli.main(command_line)
        code = 0
    except SystemExit as leaving:
        code = leaving.code or 0
    finally:
        sys.stderr.seek(0)
        said = sys.stderr.read()
        sys.stdin, sys.stdout, sys.stderr = streams
    return code, said


@pytest.fixture(scope="module", autouse=True)
def empty_folder(tmp_path_factory: pytest.TempPathFactory):
    """Nothing that is typed names an existing run or recipe here."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("fuzz"))
    yield
    os.chdir(before)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([*COMMANDS, "", "trian"]), arguments)
def test_no_command_line_gives_a_traceback(command: str, rest: list[str]) -> None:
    # `demo` alone is no nonsense: it trains. Its last argument is made to be nonsense.
    code, said = run_in_process([command, *rest, *(["--nonsense"] if command == "demo" else [])])
    assert code in (0, 2), said
    assert bool(said.strip()) == (code == 2)
