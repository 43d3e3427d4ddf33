"""The command line as a whole: help that answers at once, exit codes, and no traceback for a user's mistake."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from clearhead.cli import app as cli
from clearhead.errors import ConfigError, DataError, RunError

COMMANDS = ["train", "translate", "evaluate", "score", "info", "explain", "demo"]


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a person would start it."""
    command = [sys.executable, "-m", "clearhead", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, **options)


@pytest.fixture
def failing(monkeypatch):
    """`failing(error)` makes the app end with that exception, whatever the arguments."""

    def end_with(error: BaseException) -> None:
        def fail(**_: object) -> None:
            raise error

        monkeypatch.setattr(cli, "app", fail)

    return end_with


def exit_code_of(*arguments: str) -> int | None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(arguments)
    return leaving.value.code


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """Import time is nearly all that help costs, so what is imported says whether it is quick on any machine."""
    program = (
        "import sys\n"
        "from clearhead.cli.app import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as leaving:\n    assert not leaving.code\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'transformers', 'sacrebleu', 'safetensors', 'rich', 'babel'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    outcome = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.strip()


def test_importing_the_package_needs_no_torch() -> None:
    # case N1
    program = "import sys, clearhead; assert 'torch' not in sys.modules; clearhead.ConfigError; dir(clearhead)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_public_name_is_there() -> None:
    import clearhead

    for name in clearhead.__all__:
        assert getattr(clearhead, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Transformers'"):
        clearhead.Transformers  # noqa: B018


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str, capsys) -> None:
    assert exit_code_of(name, "--help") == 0
    assert f"clearhead {name}" in capsys.readouterr().out.split("Usage:", 1)[1].split("\n", 1)[1]


@pytest.mark.parametrize("error", [ConfigError("bad option"), DataError("a.txt:3: bad byte"), RunError("no run")])
def test_a_mistake_is_one_line_and_exit_code_2(error: Exception, failing, capsys) -> None:
    failing(error)
    assert exit_code_of("train") == 2
    assert capsys.readouterr() == ("", f"clearhead: error: {error}\n")


def test_a_file_that_cannot_be_written_is_a_mistake(failing, capsys) -> None:
    failing(PermissionError(errno.EACCES, "Permission denied", "runs/x"))
    assert exit_code_of("train") == 2
    assert capsys.readouterr().err == "clearhead: error: runs/x: Permission denied\n"


def test_a_full_disk_is_no_bug(failing, capsys) -> None:
    failing(OSError(errno.ENOSPC, "No space left on device"))
    assert exit_code_of("train") == 2
    assert capsys.readouterr().err == "clearhead: error: writing: No space left on device\n"


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), OSError(errno.EBADF, "a bug")])
def test_a_bug_keeps_its_traceback(error: Exception, failing) -> None:
    failing(error)
    with pytest.raises(type(error), match="a bug"):
        cli.main(["train"])


def test_ctrl_c_is_130(monkeypatch) -> None:
    interrupted = typer.Typer(rich_markup_mode=None)

    @interrupted.command()
    def wait() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(cli, "app", interrupted)
    assert exit_code_of() == 130


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """As in `clearhead … | head -1`: the pipe's reading end is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "clearhead", "--help"]
    outcome = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert outcome.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["--no-such-option"],
        ["translate"],
        ["translate", "no/such/run", "text"],
        ["evaluate", "no/such/run"],
        ["info", "no/such/run"],
        ["train", "no/such/recipe.toml"],
        ["demo", "no-such-demo"],
    ],
)
def test_nonsense_is_exit_code_2(arguments: list[str], tmp_path: Path) -> None:
    outcome = run(*arguments, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "Traceback" not in outcome.stderr
    assert outcome.stderr.strip()
    assert not list(tmp_path.iterdir())


def test_the_locale_does_not_matter(tmp_path: Path) -> None:
    # case D7
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    outcome = run("info", "läufe/行", cwd=tmp_path, env=ascii_only)
    assert (outcome.returncode, outcome.stderr) == (2, "clearhead: error: läufe/行: no such run folder\n")


@pytest.mark.skipif(os.name != "posix", reason="only POSIX passes arguments as bytes")
def test_an_argument_that_is_no_utf8_is_a_mistake() -> None:
    # case D7
    command = [os.fsencode(sys.executable), b"-m", b"clearhead", b"info", b"caf\xe9"]
    outcome = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert outcome.returncode == 2
    assert outcome.stderr.startswith("clearhead: error: argument b'caf\\xe9' is not valid UTF-8")
