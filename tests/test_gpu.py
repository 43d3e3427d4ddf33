"""On a GPU: the same outputs and gradients as on the CPU, within the precision."""

from __future__ import annotations

import copy

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.search import search
from clearhead.models.transformer import Transformer
from clearhead.recipe import TrainingSection
from clearhead.text.batches import collate
from clearhead.training.step import compute_gradient

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
PAIRS = [([5, 6, 7, 8], [9, 4]), ([4], [5, 6, 7]), ([10, 11, 12, 9, 8, 7, 5], [4, 4, 5, 10, 11])]


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(3)
    shape = ModelConfig(
        source_vocab=13,
        target_vocab=13,
        d_model=32,
        d_ff=64,
        n_heads=2,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
    )
    return Transformer(shape)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bfloat16", 3e-2)])
def test_gradients_are_those_of_the_cpu(model: Transformer, precision: str, tolerance: float) -> None:
    batch, on_gpu = collate(PAIRS), copy.deepcopy(model).cuda()
    expected = compute_gradient(model, [batch], TrainingSection(clip_norm=0.0), torch.device("cpu"))
    options = TrainingSection.model_validate({"clip_norm": 0.0, "precision": precision})
    found = compute_gradient(on_gpu, [batch], options, torch.device("cuda"))
    assert found.loss == pytest.approx(expected.loss, rel=tolerance)
    for (name, p), q in zip(model.named_parameters(), on_gpu.parameters(), strict=True):
        assert p.grad is not None
        assert q.grad is not None
        assert (p.grad - q.grad.cpu()).norm() <= tolerance * max(1e-3, float(p.grad.norm())), name


@pytest.mark.parametrize("beam_size", [1, 4])
def test_outputs_are_those_of_the_cpu(model: Transformer, beam_size: int) -> None:
    sources = [[*source, 2] for source, _ in PAIRS]
    options = DecodingOptions(beam_size=beam_size, max_length_extra=5)
    expected = search(model.eval(), sources, options)
    found = search(copy.deepcopy(model).cuda().eval(), sources, options)
    assert [one.ids for [one] in found] == [one.ids for [one] in expected]
    assert [one.score for [one] in found] == pytest.approx([one.score for [one] in expected], abs=1e-4)
