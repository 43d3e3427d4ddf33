"""Every command in the documentation exists, with the options that it is given there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from clearhead.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
GROUP = typer.main.get_command(app)


def console_lines(text: str) -> list[str]:
    """The commands of ```console blocks: lines behind a `$`, with their continuations, cut at pipes."""
    commands = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            if line.startswith("$ "):
                commands.extend(re.split(r"\s(?:\||&&|;)\s", line[2:]))
    return [command.strip() for command in commands]


def commands_of(program: str) -> list[tuple[str, str]]:
    pages = [page for page in PAGES if page.exists()]
    return [
        (page.name, line)
        for page in pages
        for line in console_lines(page.read_text("utf-8"))
        if re.match(rf"(\S+=\S+ )*(\S*/)?{program}(\s|$)", line)
    ]


def check_clearhead(line: str) -> None:
    """Parse the line as the command line would, without running the command."""
    words = [word for word in shlex.split(line, comments=True) if word != "clearhead"]
    words = words[: next((i for i, word in enumerate(words) if word.startswith((">", "<", "2>"))), len(words))]
    context = GROUP.make_context("clearhead", list(words), resilient_parsing=True)
    if words and not words[0].startswith("-"):
        name, command, rest = GROUP.resolve_command(context, list(words))
        assert command is not None, f"no command {words[0]!r}"
        if "--help" not in rest:
            command.make_context(name, list(rest))


def test_the_check_sees_a_wrong_command() -> None:
    text = (
        "```console\n$ clearhead info runs/x --jsn | head\n$ FOO=1 make tset\n```\n```\n$ clearhead not-checked\n```\n"
    )
    assert console_lines(text) == ["clearhead info runs/x --jsn", "head", "FOO=1 make tset"]
    with pytest.raises(Exception, match="No such option: --jsn"):
        check_clearhead("clearhead info runs/x --jsn")
    with pytest.raises(Exception, match="no command 'inform'"):
        check_clearhead("clearhead inform runs/x")


@pytest.mark.parametrize(("page", "line"), commands_of("clearhead"))
def test_clearhead_commands_exist(page: str, line: str) -> None:
    check_clearhead(line)


@pytest.mark.parametrize(("page", "line"), commands_of("make"))
def test_make_targets_exist(page: str, line: str) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    words = shlex.split(line, comments=True)
    asked = [word for word in words[words.index("make") + 1 :] if "=" not in word and not word.startswith("-")]
    assert set(asked) <= targets


@pytest.mark.parametrize("page", [page for page in PAGES if page.exists()], ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing
