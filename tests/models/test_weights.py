"""Weights on disk: plain names, tied matrices once, still tied after loading, and strict about everything else."""

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearhead.config import ModelConfig
from clearhead.errors import RunError
from clearhead.models.transformer import Transformer, load_weights
from clearhead.training.checkpoints import save_weights_atomically

TYINGS = pytest.mark.parametrize("tied", ["none", "output", "all"])


def make_model(seed, **fields):
    torch.manual_seed(seed)
    shape = {"source_vocab": 13, "target_vocab": 13, "d_model": 6, "d_ff": 7, "n_heads": 2, "dropout": 0.0}
    return Transformer(ModelConfig(**{**shape, "encoder_layers": 1, "decoder_layers": 2, **fields}))


def logits(model):
    return model(torch.tensor([[3, 4, 5, 2]]), torch.tensor([[1, 6, 7]]))


def assert_tied(model, tied):
    source, target = model.source_embedding.weight, model.target_embedding.weight
    assert (model.projection.weight is target) == (tied != "none")
    assert (source is target) == (tied == "all")
    tables = {id(table) for table in (source, target, model.projection.weight)}
    assert len(tables) == {"none": 3, "output": 2, "all": 1}[tied]
    assert len({table.data_ptr() for table in (source, target, model.projection.weight)}) == len(tables)


def train_one_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    logits(model).square().mean().backward()
    optimizer.step()


# cases E4, T8
@TYINGS
@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_saved_and_loaded_is_the_same_model_and_learns_on(tmp_path, tied, norm_position):
    model, other = (make_model(seed, tied=tied, norm_position=norm_position) for seed in (0, 1))
    assert not torch.equal(logits(model), logits(other))
    save_weights_atomically(model, tmp_path / "model.safetensors")
    load_weights(other, tmp_path / "model.safetensors")
    assert torch.equal(logits(model), logits(other))
    assert_tied(other, tied)

    for each in (model, other):
        train_one_step(each)
    assert torch.equal(logits(model), logits(other))
    assert_tied(other, tied)
    save_weights_atomically(other, tmp_path / "tuned.safetensors")
    fresh = make_model(2, tied=tied, norm_position=norm_position)
    load_weights(fresh, tmp_path / "tuned.safetensors")
    assert torch.equal(logits(fresh), logits(model))


# case T8
@TYINGS
def test_ties_survive_copies_moves_and_state_dicts(tied):
    model = make_model(0, tied=tied)
    assert_tied(copy.deepcopy(model), tied)
    assert_tied(make_model(0, tied=tied).to(torch.float64), tied)
    assert_tied(make_model(0, tied=tied).to(torch.float64).float(), tied)
    other = make_model(1, tied=tied)
    other.load_state_dict(model.state_dict())
    assert_tied(other, tied)
    assert torch.equal(logits(other), logits(model))
    # A copy shares nothing with its original.
    copied = copy.deepcopy(model)
    train_one_step(copied)
    assert torch.equal(logits(other), logits(model))
    assert not torch.equal(logits(copied), logits(model))


# case E4
@TYINGS
def test_the_file_has_plain_names_and_each_matrix_once(tmp_path, tied):
    model = make_model(0, tied=tied)
    save_weights_atomically(model, tmp_path / "model.safetensors")
    stored = load_file(tmp_path / "model.safetensors")
    assert sum(tensor.numel() for tensor in stored.values()) == sum(p.numel() for p in model.parameters())
    assert ("projection.weight" in stored) == (tied == "none")
    assert "encoder.layers.0.self_attention.w_q.weight" in stored
    assert "decoder.layers.1.cross_attention.w_o.bias" in stored
    assert "decoder.layers.1.add_and_norm_3.norm.gamma" in stored


def test_a_model_that_was_compiled_keeps_its_names(tmp_path):
    model, compiled = make_model(0), make_model(0)
    compiled.compile(backend="eager")
    save_weights_atomically(compiled, tmp_path / "model.safetensors")
    load_weights(model, tmp_path / "model.safetensors")


def stored_weights(tmp_path, change):
    """A file of good weights after `change`."""
    path = tmp_path / "model.safetensors"
    save_weights_atomically(make_model(0), path)
    weights = load_file(path)
    change(weights)
    save_file(weights, path)
    return path


def refusal(path, **fields):
    """The message with which a model refuses a file; no weight of the model has changed by then."""
    model = make_model(1, **fields)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RunError) as caught:
        load_weights(model, path)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_missing_name_is_an_error(tmp_path):
    path = stored_weights(tmp_path, lambda weights: weights.pop("decoder.layers.1.self_attention.w_k.bias"))
    assert "lacks ['decoder.layers.1.self_attention.w_k.bias']" in refusal(path)


def test_an_unknown_name_is_an_error(tmp_path):
    path = stored_weights(tmp_path, lambda weights: weights.update(extra=torch.zeros(2)))
    assert "['extra']" in refusal(path)


def test_another_shape_is_an_error(tmp_path):
    def widen(weights):
        weights["decoder.layers.1.feed_forward.w_2.weight"] = torch.zeros(6, 8)

    message = refusal(stored_weights(tmp_path, widen))
    assert "decoder.layers.1.feed_forward.w_2.weight has the shape (6, 8), the model (6, 7)" in message


def test_a_shape_that_would_broadcast_is_an_error(tmp_path):
    def narrow(weights):
        weights["decoder.layers.1.add_and_norm_1.norm.gamma"] = torch.zeros(1)

    assert "gamma has the shape (1,)" in refusal(stored_weights(tmp_path, narrow))


@pytest.mark.parametrize("fields", [{"tied": "none"}, {"encoder_layers": 2}, {"norm_position": "pre"}, {"d_ff": 8}])
def test_the_weights_of_another_model_are_an_error(tmp_path, fields):
    refusal(stored_weights(tmp_path, lambda weights: None), **fields)


def test_a_file_that_is_none_is_an_error(tmp_path):
    assert "no such file" in refusal(tmp_path / "absent.safetensors")
    assert "not a readable" in refusal(tmp_path)
    for content in (b"", b"nonsense", b"\xff" * 100):
        (tmp_path / "broken").write_bytes(content)
        assert "not a readable" in refusal(tmp_path / "broken")
    path = stored_weights(tmp_path, lambda weights: None)
    path.write_bytes(path.read_bytes()[:-100])
    assert "not a readable" in refusal(path)
