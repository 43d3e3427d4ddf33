"""A text model loaded from a run folder: laid out for decoding, and still a mapped file's."""

from pathlib import Path

import pytest
import torch

from clearhead.decoding.loading import lay_out_mapped
from clearhead.models.gpt import GPT, gpt2_config
from clearhead.models.llama import llama_config
from clearhead.models.making import map_model
from clearhead.training.checkpoints import save_weights_atomically

SHAPE = {"vocabulary": 13, "decoder_layers": 2, "d_model": 12, "d_ff": 17, "max_positions": 20}


@torch.no_grad()
@pytest.mark.parametrize(
    "config", [gpt2_config(**SHAPE, n_heads=3), llama_config(**SHAPE, n_heads=6, kv_heads=3, tied="none")]
)
def test_laying_out_changes_no_result(tmp_path, config):
    torch.manual_seed(0)
    model = GPT(config).eval()
    save_weights_atomically(model, tmp_path / "model.safetensors")
    mapped = map_model(config, tmp_path / "model.safetensors").eval()
    lay_out_mapped(mapped, tmp_path / "model.safetensors")
    ids = torch.randint(0, 13, (2, 9))
    torch.testing.assert_close(mapped(ids), model(ids), rtol=1e-5, atol=1e-6)
    own = dict(model.named_parameters())
    for name, parameter in mapped.named_parameters():
        assert torch.equal(parameter, own.get(name, own["embedding.weight"])), name


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux says what is mapped")
def test_what_was_read_to_be_packed_is_given_back(tmp_path):
    """Each matrix has a mapping of its own while it is packed; then only the model's is left."""
    path = tmp_path / "model.safetensors"
    config = llama_config(**SHAPE, n_heads=6, kv_heads=3, tied="none")
    save_weights_atomically(GPT(config), path)
    model = map_model(config, path).eval()
    mapped = Path("/proc/self/maps").read_text().count(str(path))
    lay_out_mapped(model, path)
    assert mapped
    assert Path("/proc/self/maps").read_text().count(str(path)) <= mapped


@torch.no_grad()
def test_weights_that_are_changed_later_count(tmp_path):
    config = llama_config(**SHAPE, n_heads=6, kv_heads=3, tied="none")
    save_weights_atomically(GPT(config), tmp_path / "model.safetensors")
    model = map_model(config, tmp_path / "model.safetensors").eval()
    lay_out_mapped(model, tmp_path / "model.safetensors")
    ids = torch.tensor([[1, 2, 3]])
    assert model(ids).any()
    model.projection.weight.zero_()
    assert not model(ids).any()
