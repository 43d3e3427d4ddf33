"""Compiling the kernels, and doing without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clearhead import kernels
from clearhead.kernels.library import SOURCE

needs_kernels = pytest.mark.skipif(kernels.library() is None, reason="this machine has no C++ compiler")
ASK = "from clearhead.kernels.library import library; print(library() is not None)"


def has_kernels(**environment: str) -> bool:
    """Whether a fresh process with these environment variables has kernels."""
    command = [sys.executable, "-c", ASK]
    result = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=120
    )
    return result.stdout.strip() == "True"


@needs_kernels
def test_they_are_compiled_once_and_kept(tmp_path: Path) -> None:
    assert has_kernels(XDG_CACHE_HOME=str(tmp_path))
    [file] = tmp_path.rglob("*.so")
    assert list((tmp_path / "clearhead").iterdir()) == [file]  # nothing half done beside it
    first = file.stat().st_mtime_ns
    assert has_kernels(XDG_CACHE_HOME=str(tmp_path), CXX="/nonexistent")  # no compiler is asked again
    assert file.stat().st_mtime_ns == first


@pytest.mark.parametrize(
    "environment",
    [{"CLEARHEAD_KERNELS": "off"}, {"CXX": "/nonexistent"}, {"CXX": "false"}, {"CXX": "true"}],
    ids=["turned off", "no compiler", "a compiler that fails", "a compiler that writes nothing"],
)
def test_there_may_be_none(environment: dict[str, str], tmp_path: Path) -> None:
    assert not has_kernels(XDG_CACHE_HOME=str(tmp_path), **environment)


@needs_kernels
def test_a_broken_library_is_no_library(tmp_path: Path) -> None:
    assert has_kernels(XDG_CACHE_HOME=str(tmp_path))
    [file] = tmp_path.rglob("*.so")
    file.write_bytes(b"not a library")
    assert not has_kernels(XDG_CACHE_HOME=str(tmp_path))


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert not has_kernels(XDG_CACHE_HOME=str(tmp_path / "file"))


def test_they_take_float32_on_a_cpu_without_gradients(monkeypatch) -> None:
    x, weight = torch.ones(2), torch.ones(2, requires_grad=True)
    expected = kernels.library() is not None
    assert kernels.take(x) == expected
    assert not kernels.take(x, weight)
    with torch.no_grad():
        assert kernels.take(x, weight) == expected
    assert not kernels.take(x.double())
    assert not kernels.take(x, x.bfloat16())
    assert not kernels.take(x.to("meta"))
    monkeypatch.setattr(kernels, "library", lambda: None)
    assert not kernels.take(x)


def test_the_source_is_short_enough_to_read() -> None:
    assert len(SOURCE.read_text("utf-8").splitlines()) < 500
