"""Checkpoints: everything comes back, bit by bit; a broken file is never the end, and never taken for a whole one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.errors import RunError
from clearhead.models.transformer import Transformer, load_weights
from clearhead.recipe import TrainingSection
from clearhead.text.batches import collate
from clearhead.training.checkpoints import Checkpoints, average_weights, save_weights_atomically
from clearhead.training.optimizer import make_optimizer, optimizer_tensors
from clearhead.training.state import TrainingState, Window
from clearhead.training.step import compute_gradient

OPTIONS = TrainingSection()
CPU = torch.device("cpu")
RunPython = Callable[[str], subprocess.CompletedProcess[str]]


def make_model(seed: int = 0, tied: str = "output", **changes: int) -> Transformer:
    torch.manual_seed(seed)
    shape = {"source_vocab": 11, "target_vocab": 11, "d_model": 8, "d_ff": 12, "n_heads": 2, "tied": tied}
    return Transformer(ModelConfig.from_dict({**shape, "encoder_layers": 1, "decoder_layers": 1, **changes}))


def train_a_step(model: Transformer, optimizer: torch.optim.Optimizer) -> None:
    compute_gradient(model, [collate([([5, 6], [7, 8, 9]), ([4], [10])])], OPTIONS, CPU)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    optimizer.step()
    optimizer.zero_grad()


def saved(directory: Path, updates: list[int], tied: str = "output") -> tuple[Transformer, torch.optim.Optimizer]:
    """A model with a checkpoint at each of some updates, one step of training apart."""
    model = make_model(tied=tied)
    optimizer = make_optimizer(model, OPTIONS)
    checkpoints = Checkpoints(directory)
    for update in updates:
        train_a_step(model, optimizer)
        checkpoints.save(model, optimizer, TrainingState(update=update, best_value=0.1 + update))
    return model, optimizer


# case E4
@pytest.mark.parametrize("tied", ["none", "output", "all"])
def test_everything_comes_back_and_goes_on_alike(tmp_path: Path, tied: str) -> None:
    model, optimizer = saved(tmp_path, [7], tied)
    after = torch.rand(3)
    torch.rand(100)

    other = make_model(seed=5, tied=tied)
    other_optimizer = make_optimizer(other, OPTIONS)
    said: list[str] = []
    state = Checkpoints(tmp_path).load_newest(other, other_optimizer, said.append)
    assert state == TrainingState(update=7, best_value=7.1)
    assert not said
    assert torch.equal(torch.rand(3), after)
    assert len({p.data_ptr() for p in other.parameters()}) == len({p.data_ptr() for p in model.parameters()})
    for _ in range(2):
        torch.manual_seed(1)
        train_a_step(model, optimizer)
        torch.manual_seed(1)
        train_a_step(other, other_optimizer)
    for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q), name
    expected = optimizer_tensors(optimizer, model)
    for name, value in optimizer_tensors(other_optimizer, other).items():
        assert torch.equal(value, expected[name]), name
    assert expected["encoder.layers.0.feed_forward.w_1.weight.step"] == 3


def test_the_state_survives_json_exactly(tmp_path: Path) -> None:
    window = Window(updates=3, tokens=10, loss=0.1 + 0.2, plain=1 / 3, norm=1e-17, seconds=2.5)
    state = TrainingState(update=9, epoch=2, batch=5, best_value=1 / 7, snapshots=[3, 6, 9], window=window)
    model = make_model()
    Checkpoints(tmp_path).save(model, make_optimizer(model, OPTIONS), state)
    assert Checkpoints(tmp_path).load_newest(model, make_optimizer(model, OPTIONS), print) == state


# case T11
@pytest.mark.parametrize("kept", [0, 1, 7, 300, -1])
def test_a_truncated_checkpoint_is_passed_over(tmp_path: Path, kept: int) -> None:
    saved(tmp_path, [1, 2])
    newest = Checkpoints(tmp_path).checkpoint_path(2)
    newest.write_bytes(newest.read_bytes()[:kept])
    said: list[str] = []
    model = make_model(5)
    state = Checkpoints(tmp_path).load_newest(model, make_optimizer(model, OPTIONS), said.append)
    assert state is not None
    assert state.update == 1
    assert len(said) == 1
    assert str(newest) in said[0]


# case T11
@pytest.mark.parametrize("place", [0.2, 0.5, 0.99])
def test_a_flipped_bit_is_noticed(tmp_path: Path, place: float) -> None:
    saved(tmp_path, [1, 2])
    newest = Checkpoints(tmp_path).checkpoint_path(2)
    content = bytearray(newest.read_bytes())
    content[int(len(content) * place)] ^= 4
    newest.write_bytes(content)
    model = make_model(5)
    state = Checkpoints(tmp_path).load_newest(model, make_optimizer(model, OPTIONS), print)
    assert state is not None
    assert state.update == 1


# case T11
def test_when_all_are_broken_the_error_says_so(tmp_path: Path) -> None:
    saved(tmp_path, [1, 2])
    for update in (1, 2):
        Checkpoints(tmp_path).checkpoint_path(update).write_bytes(b"")
    model = make_model()
    with pytest.raises(RunError, match="every checkpoint is broken"):
        Checkpoints(tmp_path).load_newest(model, make_optimizer(model, OPTIONS), print)


# case T11
def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, run_python: RunPython) -> None:
    """The file may not grow beyond 4 KB; in a process of its own, since the limit stays."""
    saved(tmp_path, [1])
    program = f"""
import resource
from pathlib import Path
from test_checkpoints import OPTIONS, Checkpoints, TrainingState, make_model, make_optimizer
model, directory = make_model(), Path({str(tmp_path)!r})
optimizer = make_optimizer(model, OPTIONS)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    Checkpoints(directory).save(model, optimizer, TrainingState(update=2))
except OSError as error:
    print("refused:", error)
"""
    assert "refused:" in run_python(program).stdout
    model = make_model(5)
    state = Checkpoints(tmp_path).load_newest(model, make_optimizer(model, OPTIONS), print)
    assert state is not None
    assert state.update == 1
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-0000001.safetensors"]


def test_another_model_is_refused_by_name(tmp_path: Path) -> None:
    saved(tmp_path, [1])
    other = make_model(d_ff=16)
    with pytest.raises(RunError, match="has the shape"):
        Checkpoints(tmp_path).load_newest(other, make_optimizer(other, OPTIONS), print)


def test_pruning_keeps_the_newest_and_the_named(tmp_path: Path) -> None:
    model, _ = saved(tmp_path, [1, 2, 3, 10])
    checkpoints = Checkpoints(tmp_path)
    for update in (1, 2, 3, 10):
        checkpoints.save_weights(model, update)
    checkpoints.prune(keep=2, keep_weights=[1, 10])
    assert checkpoints.updates() == [3, 10]
    assert [u for u in (1, 2, 3, 10) if checkpoints.weights_path(u).exists()] == [1, 10]


def test_the_average_of_weights(tmp_path: Path) -> None:
    models = [make_model(seed) for seed in range(3)]
    for seed, model in enumerate(models):
        save_weights_atomically(model, tmp_path / f"{seed}.safetensors")
    average = average_weights(sorted(tmp_path.iterdir()))
    for name in average:
        three = torch.stack([dict(model.named_parameters())[name].detach().double() for model in models])
        torch.testing.assert_close(average[name], three.mean(0).float())


# case E4
@pytest.mark.parametrize("tied", ["none", "output", "all"])
def test_weights_files_are_readable_for_others_and_tied_matrices_come_back_as_one(tmp_path: Path, tied: str) -> None:
    path = tmp_path / "model.safetensors"
    (tmp_path / "ordinary").touch()
    model = make_model(tied=tied)
    save_weights_atomically(model, path)
    assert path.stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    other = make_model(seed=9, tied=tied)
    load_weights(other, path)
    assert (other.projection.weight is other.target_embedding.weight) == (tied != "none")
    assert (other.source_embedding.weight is other.target_embedding.weight) == (tied == "all")
    batch = collate([([5, 6], [7, 8])])
    assert torch.equal(model.eval()(batch.source, batch.decoder_input), other.eval()(batch.source, batch.decoder_input))
