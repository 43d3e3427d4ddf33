"""`kill -9` at any moment, then `--resume`: the same final weights as a run that nobody killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

RunPython = Callable[[str], subprocess.CompletedProcess[str]]

RECIPE = """
[data]
train = {{ pairs = "{pairs}" }}
max_length = 32
[tokenizer]
vocab_size = 300
[model]
encoder_layers = 1
decoder_layers = 1
d_model = 16
d_ff = 16
n_heads = 2
[training]
updates = 24
batch_tokens = 64
warmup = 5
validate_every = 5
save_every = 2
average = 3
samples = 1
device = "cpu"
threads = 1
"""


@pytest.fixture
def recipe(tmp_path: Path, reversal_pairs: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(pairs=reversal_pairs.as_posix()), encoding="utf-8")
    return path


def final_tensors(run: Path) -> dict[str, torch.Tensor]:
    """All that a finished run holds: the weights to use, and the newest checkpoint."""
    return {**load_file(run / "model.safetensors"), **load_file(max((run / "checkpoints").glob("checkpoint-*")))}


def assert_same_run(killed: Path, whole: Path) -> None:
    expected, found = final_tensors(whole), final_tensors(killed)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    for run in (killed, whole):  # and no leftovers
        assert not [path for path in run.rglob("*") if path.name.endswith(".tmp") or path.name.startswith(".tmp")]
    assert len(list(killed.rglob("*.safetensors"))) == len(list(whole.rglob("*.safetensors")))


# Runs in a process that has imported all and computed nothing: its forks begin at once, and are killed.
FORKS = """
import os, random, signal, sys, time
import torch._dynamo  # what an optimizer imports
import clearhead.training.run
from clearhead.cli.app import main

def start(*arguments):
    child = os.fork()
    if child == 0:
        try:
            main(["train", {recipe!r}, *arguments])
        except SystemExit as leaving:
            os._exit(leaving.code or 0)
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(1)
    return child

began = time.monotonic()
_, status = os.waitpid(start("--set", "run.dir={whole}"), 0)
duration = time.monotonic() - began
assert status == 0, status
moments = random.Random({seed})
for _ in range({kills}):
    child = start("--set", "run.dir={killed}", "--resume")
    time.sleep(moments.uniform(0, duration))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
_, status = os.waitpid(start("--set", "run.dir={killed}", "--resume"), 0)
assert status == 0, status
print("went through")
"""


# case T11
def test_a_run_that_is_killed_a_few_times_ends_the_same(tmp_path: Path, recipe: Path, run_python: RunPython) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("forks")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    program = FORKS.format(recipe=str(recipe), whole=whole, killed=killed, kills=5, seed=random.randrange(10**6))
    process = run_python(program)
    assert "went through" in process.stdout, program + process.stderr
    assert_same_run(killed, whole)


# case T11
@pytest.mark.slow
def test_a_run_that_is_killed_twenty_times_ends_the_same(tmp_path: Path, recipe: Path) -> None:
    """The command itself, at moments from its first import to its last file."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    began = time.monotonic()
    subprocess.run(command(recipe, whole), check=True, capture_output=True, env=environment())
    duration = time.monotonic() - began
    for _ in range(20):
        process = subprocess.Popen(command(recipe, killed, "--resume"), stdout=subprocess.DEVNULL, env=environment())
        time.sleep(random.uniform(0, duration))
        process.kill()
        process.wait()
    subprocess.run(command(recipe, killed, "--resume"), check=True, capture_output=True, env=environment())
    assert_same_run(killed, whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_with_its_code_and_advice(
    tmp_path: Path, recipe: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    arguments = [*command(recipe, run), "--set", "training.updates=100000", "--set", "training.log_every=1"]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
    ) as p:
        assert p.stdout is not None
        for line in p.stdout:  # until it trains
            if "update 3/" in line:
                break
        p.send_signal(number)
        rest = p.stdout.read()
    assert p.returncode == code, rest
    assert f"stopped by {number.name} at update" in rest
    assert f"clearhead train {run} --resume" in rest
    assert "Traceback" not in rest
    assert list((run / "checkpoints").glob("checkpoint-*"))


def command(recipe: Path, run: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "clearhead", "train", str(recipe), "--set", f"run.dir={run}", *more]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
