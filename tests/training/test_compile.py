"""Compiled training: few compilations whatever the lengths, and the same numbers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

# In a process of its own: the checks of shapes that are on in the tests can't be compiled.
PROGRAM = """
import copy, json, warnings
warnings.simplefilter("ignore")  # the compiler's own
import torch
from torch._dynamo.utils import counters
from clearhead.config import ModelConfig
from clearhead.models.transformer import Transformer
from clearhead.recipe import TrainingSection
from clearhead.text.batches import collate
from clearhead.training.step import compute_gradient

torch.manual_seed(0)
torch.set_num_threads(1)
shape = ModelConfig(source_vocab=11, target_vocab=11, d_model=8, d_ff=12, n_heads=2, encoder_layers=1, decoder_layers=1)
plain = Transformer(shape).eval()
compiled = copy.deepcopy(plain)
for stack in (compiled.encoder, compiled.decoder):
    stack.compile(dynamic=True, backend={backend!r})
compilations, difference = [], 0.0
for pairs, source, target in [(3, 4, 5), (2, 9, 3), (5, 7, 7), (7, 3, 12), (4, 6, 2), (6, 11, 8)]:
    batch = collate([([5] * source, [6] * target)] * pairs)
    for model in (plain, compiled):
        model.zero_grad()
        compute_gradient(model, [batch], TrainingSection(clip_norm=0), torch.device("cpu"))
    compilations.append(counters["stats"]["unique_graphs"])
    for p, q in zip(plain.parameters(), compiled.parameters(), strict=True):
        difference = max(difference, (p.grad - q.grad).abs().max().item())
print(json.dumps({{"compilations": compilations, "difference": difference,
                  "same names": list(plain.state_dict()) == list(compiled.state_dict())}}))
"""


# case T16
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_few_compilations_for_many_lengths(
    run_python: Callable[[str], subprocess.CompletedProcess[str]], backend: str
) -> None:
    process = run_python(PROGRAM.format(backend=backend))
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout.splitlines()[-1])
    assert found["compilations"][0] >= 1
    assert found["compilations"][-1] <= found["compilations"][0] + 1, found
    assert found["difference"] < 1e-5
    assert found["same names"]
