"""What the demos do with files."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from clearhead.errors import ConfigError


class DemoFiles(NamedTuple):
    """The three files of a demo: lines of `source TAB target [TAB another acceptable target]`, or a JSON object a
    line."""

    train: Path
    valid: Path
    test: Path


def demo_files(directory: Path, suffix: str = ".tsv") -> DemoFiles:
    """The paths of the three."""
    return DemoFiles(*(directory / f"{name}{suffix}" for name in DemoFiles._fields))


def write_tsv(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """Writes tab-separated lines (`write_lines`)."""
    write_lines(path, ("\t".join(row) for row in rows))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes lines, UTF-8, with line feeds on every system; the file is whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(path.suffix + ".part")
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    unfinished.replace(path)


def read_tsv(path: Path) -> list[list[str]]:
    """The columns of every line of a file that `write_tsv` wrote."""
    return [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def missing_package(name: str) -> ConfigError:
    """The error for a package of the `demo` extra that is not installed."""
    return ConfigError(f'the demo data comes from {name}, which is not installed: pip install "clearhead[demo]"')
