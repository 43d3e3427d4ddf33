"""`clearhead COMMAND`: the commands, and what becomes of errors.

Nothing here imports torch: the commands do, when they run, so `clearhead --help` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import clearhead
from clearhead.cli.bench import bench
from clearhead.cli.demo import demo
from clearhead.cli.diff import diff
from clearhead.cli.doctor import doctor
from clearhead.cli.encode import fill_mask, vectors
from clearhead.cli.evaluate import evaluate
from clearhead.cli.explain import explain
from clearhead.cli.generate import generate
from clearhead.cli.info import info
from clearhead.cli.inspect import inspect
from clearhead.cli.interchange import export_model, import_model
from clearhead.cli.score import score
from clearhead.cli.train import train
from clearhead.cli.translate import translate
from clearhead.errors import ClearheadError, ConfigError

app = typer.Typer(
    name="clearhead",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: it keeps the line breaks of examples, and answers sooner
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
for command in (
    train, translate, evaluate, score, bench, inspect, doctor, explain, info, demo, generate, vectors, fill_mask, diff
):  # fmt: skip
    app.command()(command)
app.command("import")(import_model)
app.command("export")(export_model)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"clearhead {clearhead.__version__}")
        raise typer.Exit


@app.callback()
def _clearhead(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train a Transformer on pairs of strings, measure it, look inside it, and use it.

    \b
    Examples:
      clearhead demo                                   # a first model in two minutes
      clearhead train recipes/multi30k-en-de.toml
      clearhead evaluate runs/multi30k-en-de
      clearhead translate runs/multi30k-en-de "A dog runs through the snow ."
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line `arguments` (`sys.argv` without them) and leave by `SystemExit`.

    The exit code is 0; 2 for a mistake of the user's, which is said in one line and without a traceback; 130 after
    Ctrl-C. An exception that nobody foresaw keeps its traceback: it is a bug, and worth reporting.
    """
    if arguments is None:
        _use_utf8_mode()
        arguments = sys.argv[1:]
    _write_utf8()
    try:
        _require_utf8(arguments)
        app(args=list(arguments), prog_name="clearhead")
    except ClearheadError as error:
        _leave(str(error))
    except OSError as error:
        # A file that can't be opened or written, or a full disk, is nothing that a traceback would explain.
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        _leave(f"{error.filename or 'writing'}: {error.strerror}")
    finally:
        _flush_output()


def _leave(message: str) -> None:
    print(f"clearhead: error: {message}", file=sys.stderr)
    sys.exit(2)


def _use_utf8_mode() -> None:
    """Start again in Python's UTF-8 mode if file names and arguments have another encoding (case D7)."""
    if sys.getfilesystemencoding().lower() != "utf-8":
        command = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONUTF8": "1"})


def _write_utf8() -> None:
    """Make the standard streams UTF-8 whatever the locale says (case D7)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a stream that a test put there has no encoding to change
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _require_utf8(arguments: Sequence[str]) -> None:
    """Bytes that are no UTF-8 arrive as lone surrogates, which nothing behind this could write or encode."""
    for argument in arguments:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError:
            raise ConfigError(f"argument {os.fsencode(argument)!r} is not valid UTF-8") from None


def _flush_output() -> None:
    """Write what is left; if the reader has gone (`clearhead translate … | head`), that is no error of ours."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
