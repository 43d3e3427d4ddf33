"""The gradient of an update: however its pairs are cut into batches and processes, it is the same."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing

from clearhead.config import ModelConfig
from clearhead.errors import RunError
from clearhead.models.transformer import Transformer
from clearhead.recipe import TrainingSection
from clearhead.text.batches import Batch, collate
from clearhead.training.step import add_gradient, compute_gradient

CPU = torch.device("cpu")
RunPython = Callable[[str], subprocess.CompletedProcess[str]]
# Lengths 2, 3, 9 and 30: a mean of the four means would be far off.
PAIRS = [([5] * 4, [6, 7]), ([5, 6, 7], [8] * 3), ([9, 4], [10, 4, 5] * 3), ([7] * 20, [5, 6, 7, 8, 9] * 6)]


def make_model() -> Transformer:
    torch.manual_seed(11)
    shape = ModelConfig(
        source_vocab=11, target_vocab=11, d_model=8, d_ff=12, n_heads=2, encoder_layers=1, decoder_layers=1
    )
    return Transformer(shape).double().eval()  # no dropout: the parts are to be compared


def options(**changes: object) -> TrainingSection:
    return TrainingSection.model_validate({"clip_norm": 0, **changes})


def gradients(batches: list[Batch], **changes: object) -> dict[str, torch.Tensor]:
    model = make_model()
    compute_gradient(model, batches, options(**changes), CPU)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


# case T3
def test_accumulated_batches_have_the_gradient_of_one() -> None:
    whole = gradients([collate(PAIRS)])
    parts = gradients([collate([pair]) for pair in PAIRS])
    assert whole.keys() == parts.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=0, atol=1e-12)
    assert max(gradient.abs().max() for gradient in whole.values()) > 1e-3


# case T3
def test_the_reported_losses_are_those_of_one_batch_too() -> None:
    whole = compute_gradient(make_model(), [collate(PAIRS)], options(), CPU)
    parts = compute_gradient(make_model(), [collate([pair]) for pair in PAIRS], options(), CPU)
    assert parts == pytest.approx(whole, rel=1e-12)
    assert whole.tokens == 2 + 3 + 9 + 30 + 4


def test_clipping_scales_the_gradient_to_the_norm() -> None:
    free, clipped = gradients([collate(PAIRS)]), gradients([collate(PAIRS)], clip_norm=0.01)
    norm = torch.stack([gradient.norm() for gradient in free.values()]).norm()
    assert norm > 0.01
    for name, gradient in free.items():
        torch.testing.assert_close(clipped[name], gradient * 0.01 / norm, rtol=1e-4, atol=0)


def gradient_of_process(rank: int, meeting: str, results: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    own = PAIRS[:1] if rank == 0 else PAIRS[1:]
    found = gradients([collate([pair]) for pair in own])
    for gradient in found.values():
        distributed.all_reduce(gradient)
    if rank == 0:
        torch.save(found, results)
    distributed.destroy_process_group()


# case P2
def test_two_processes_with_unequal_lengths_have_the_gradient_of_one(tmp_path: Path) -> None:
    arguments = (str(tmp_path / "meeting"), str(tmp_path / "gradients"))
    multiprocessing.spawn(gradient_of_process, arguments, nprocs=2)
    together = torch.load(arguments[1], weights_only=True)
    for name, gradient in gradients([collate(PAIRS)]).items():
        torch.testing.assert_close(together[name], gradient, rtol=0, atol=1e-12)


def test_bfloat16_keeps_gradients_and_loss_in_float32() -> None:
    model = make_model().float()
    exact = compute_gradient(model, [collate(PAIRS)], options(), CPU)
    expected = model.decoder.layers[0].feed_forward.w_1.weight.grad.clone()
    model.zero_grad()
    rounded = compute_gradient(model, [collate(PAIRS)], options(precision="bfloat16"), CPU)
    found = model.decoder.layers[0].feed_forward.w_1.weight.grad
    assert found.dtype == torch.float32
    assert rounded.loss == pytest.approx(exact.loss, rel=0.02)
    assert rounded.loss != exact.loss
    assert torch.nn.functional.cosine_similarity(found.flatten(), expected.flatten(), dim=0) > 0.99


# case T10
def test_running_out_of_memory_names_the_batch(run_python: RunPython) -> None:
    """In a process of its own, which is allowed 50 MB more than it has."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("limits the memory by way of /proc")
    program = """
import resource
from test_step import CPU, make_model, options
from clearhead.text.batches import collate
from clearhead.training.step import add_gradient
batch = collate([([5] * 100, [6] * 80)] * 4000)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 50_000_000,) * 2)
add_gradient(make_model(), batch, options(), CPU, divisor=1)
"""
    said = run_python(program).stderr
    assert "RunError: out of memory on cpu, batch of 4000 pairs, 4000 x 101 source and 4000 x 81 target" in said
    assert "lower training.batch_tokens (now 4096)" in said


def test_other_errors_of_torch_are_not_taken_for_memory() -> None:
    batch = collate([([5, 99], [6])])  # no such token
    with pytest.raises((RuntimeError, IndexError)) as caught:
        add_gradient(make_model(), batch, options(), CPU, divisor=1)
    assert not isinstance(caught.value, RunError)
