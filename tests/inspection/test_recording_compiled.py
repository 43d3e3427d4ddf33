"""Recording a compiled model: it can be switched on afterwards, and what comes out stays the same."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# In a process of its own: the checks of shapes that are on in the tests can't be compiled.
PROGRAM = """
import json, warnings
warnings.simplefilter("ignore")  # the compiler's own
import torch
import clearhead
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.search import search
torch.manual_seed(0)
torch.set_num_threads(1)
model = clearhead.Transformer(clearhead.ModelConfig(
    source_vocab=11, target_vocab=11, d_model=12, d_ff=17, n_heads=3, encoder_layers=2, decoder_layers=2,
)).eval()
source, target = torch.tensor([[4, 5, 6, 7, 2], [9, 8, 2, 0, 0]]), torch.tensor([[1, 4, 5], [1, 6, 0]])
with clearhead.record_attention(model) as expected:
    plain = model(source, target)
model.compile(backend={backend!r})
before = model(source, target)
with clearhead.record_attention(model) as maps:
    during = model(source, target)
after = model(source, target)
rows = [[4, 5, 6, 7, 2], [9, 8, 2]]
searches = [DecodingOptions(beam_size=beam, max_length_ratio=1.0, max_length_extra=2) for beam in (1, 3)]
found = [search(model, rows, options) for options in searches]
with clearhead.record_attention(model):
    watched = [search(model, rows, options) for options in searches]
print(json.dumps({{
    "names": sorted(maps) == sorted(expected) and len(maps) == 6,
    "maps": max((maps[name] - expected[name]).abs().max().item() for name in expected),
    "during": (during - before).abs().max().item(),
    "after": (after - before).abs().max().item(),
    "plain": (plain - before).abs().max().item(),
    "searches": found == watched,
}}))
"""


# case I2
@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_model_is_recorded(backend):
    run = subprocess.run([sys.executable, "-c", PROGRAM.format(backend=backend)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["names"]
    assert found["searches"]
    assert max(found["maps"], found["during"], found["after"], found["plain"]) <= 1e-6
