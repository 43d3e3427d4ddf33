"""What an installation brings along."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REQUIREMENTS = [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)]


# cases N1, N2
@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_no_version_is_too_new(requirement: str) -> None:
    assert not re.search(r"<|==|~=|!=", requirement)
    assert "torchtext" not in requirement


# case N1
def test_every_library_that_the_package_imports_is_required() -> None:
    """By the package itself, or by an extra: none comes in by luck, with another."""
    required = {re.split(r"[\[<>=!~; ]", requirement)[0].lower() for requirement in REQUIREMENTS}
    distributions = packages_distributions()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in {name.split(".")[0] for name in names} & distributions.keys() - {"clearhead"}:
                assert required & {d.lower() for d in distributions[name]}, f"{path} imports {name}"
