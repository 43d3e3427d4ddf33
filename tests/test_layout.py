"""The layout of the package: each layer stands on those before it, and a file is read in one sitting."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "clearhead"

# From the bottom up: a file may import from its own layer and from those before it.
LAYERS = [
    "errors",
    "control_tokens",
    "toml",
    "device",
    "config",
    "recipe",
    "run_folder",
    "text",
    "kernels",
    "parts",
    "models",
    "inspection",
    "interchange",
    "decoding",
    "evaluation",
    "training",
    "doctor",
    "demos",
    "experiments",
    "cli",
]

FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in LAYERS)


def layer_of(module: str) -> str | None:
    """The layer of `clearhead.parts.masks` is `parts`; the package itself (lazy re-exports) has none."""
    names = module.split(".")
    return names[1] if names[0] == "clearhead" and len(names) > 1 else None


def imported_layers(source: str) -> Iterator[tuple[int, str]]:
    """Line and layer of every import in a file, those inside functions and for type checkers included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            # `from clearhead import parts` names a layer too
            modules = [node.module, *(f"{node.module}.{a.name}" for a in node.names if node.module == "clearhead")]
        else:
            continue
        for module in modules:
            layer = layer_of(module)
            if layer in LAYERS:
                yield node.lineno, layer


def test_the_list_of_layers_is_complete() -> None:
    found = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}
    assert found - {"__init__", "__main__"} == set(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_to_earlier_layers(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    allowed = LAYERS[: LAYERS.index(own) + 1]
    wrong = [(line, layer) for line, layer in imported_layers(path.read_text("utf-8")) if layer not in allowed]
    assert not wrong, f"{path.name} imports from later layers (line, layer): {wrong}"


def test_the_check_sees_a_wrong_import() -> None:
    source = "import clearhead.cli.app\nfrom clearhead import training\ndef f():\n    from clearhead.models import x\n"
    assert list(imported_layers(source)) == [(1, "cli"), (2, "training"), (4, "models")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_is_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 350


def test_no_test_asserts_on_the_clock() -> None:
    """A slow machine is no bug. Speed is measured by `make bench`."""
    for path in Path(__file__).parent.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Assert):
                called = {ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
                clocks = called & {"time.time", "time.perf_counter", "time.monotonic", "perf_counter", "monotonic"}
                assert not clocks, f"{path}:{node.lineno}: asserts on {clocks}"
