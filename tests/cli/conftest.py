"""A run folder made by hand, and the command line in this process."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from clearhead.cli.app import main
from clearhead.recipe import make_recipe
from clearhead.run_folder import RunFolder
from clearhead.training.checkpoints import save_weights_atomically


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Standard output, at line feeds and nowhere else."""
        assert not self.out or self.out.endswith("\n")
        return self.out.split("\n")[:-1]


@pytest.fixture(scope="session")
def trained(half_trained, letters, tmp_path_factory) -> Path:
    """The run folder of the half-trained copyist. Tests must leave it as it is."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "copyist")
    folder.path.mkdir()
    decoding = {"beam_size": 3, "max_length_ratio": 1.2, "max_length_extra": 1}
    folder.write_recipe(make_recipe({"data": {"train": {"pairs": "pairs.tsv"}}, "decoding": decoding}))
    folder.write_config(half_trained.config)
    letters[0].save(folder.source_tokenizer)
    letters[1].save(folder.target_tokenizer)
    save_weights_atomically(half_trained, folder.model)
    return folder.path


@pytest.fixture
def command(capsys, monkeypatch) -> Callable[..., Outcome]:
    """`command("translate", run, …, stdin=b"…")` runs `clearhead` and gives its exit code and what it printed."""

    def call(*arguments: str | Path, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main([str(argument) for argument in arguments])
        return Outcome(leaving.value.code or 0, *capsys.readouterr())

    return call
