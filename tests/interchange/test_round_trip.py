"""Export, transformers, import: the same bits. And what isn't understood is refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearhead.errors import ConfigError, RunError
from clearhead.interchange.hugging_face import read_folder
from clearhead.interchange.importing import export_model, import_model

NAMES = [
    "gpt2", "bert BertForMaskedLM", "bert BertForPreTraining", "bert BertModel", "llama default", "llama another base",
    "llama linear", "llama llama3", "marian",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_come_back(hf, folder_of, tmp_path, name):
    path, theirs = folder_of(name)
    run = import_model(path, tmp_path / "run")
    exported = export_model(run.path, tmp_path / "out")
    again = type(theirs).from_pretrained(exported)
    for key, value in theirs.state_dict().items():
        if "seq_relationship" not in key:  # a head that we have no use for
            assert torch.equal(again.state_dict()[key], value), key
    again.save_pretrained(tmp_path / "saved")
    if name == "marian":
        (tmp_path / "saved" / "vocab.json").write_text((path / "vocab.json").read_text())
    once, twice = read_folder(path), read_folder(tmp_path / "saved")
    assert once.config == twice.config
    assert once.weights.keys() == twice.weights.keys()
    assert all(torch.equal(tensor, twice.weights[key]) for key, tensor in once.weights.items())
    assert once.control == twice.control


def test_shards_are_one_model(folder_of):
    whole, _ = folder_of("llama default")
    sharded, _ = folder_of("llama default", max_shard_size="5KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    one, other = read_folder(whole).weights, read_folder(sharded).weights
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[key]) for key, tensor in one.items())


def test_half_precision_becomes_float32(hf, folder_of, tmp_path):
    path, theirs = folder_of("gpt2")
    type(theirs).from_pretrained(path, dtype=torch.bfloat16).save_pretrained(tmp_path)
    for key, tensor in read_folder(tmp_path).weights.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, read_folder(path).weights[key].bfloat16().float(), rtol=0, atol=0)


def altered(path, tmp_path, *, attributes=None, change=None):
    """A copy of a folder with other attributes, or other tensors."""
    config = json.loads((path / "config.json").read_text()) | (attributes or {})
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = load_file(path / "model.safetensors")
    if change is not None:
        change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "attributes", "words"),
    [
        ("gpt2", {"new_trick": 3}, "not known here, and it may change what the model computes: new_trick = 3"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True is not supported"),
        ("gpt2", {"activation_function": "mish"}, "activation_function = 'mish' is not known here"),
        ("gpt2", {"n_layer": "3"}, "n_layer = '3': expected a whole number"),
        (
            "gpt2",
            {"model_type": "mamba"},
            "model_type = 'mamba' is not known here; known are bert, gpt2, llama, marian",
        ),
        ("llama default", {"attention_bias": True}, "attention_bias = True is not supported, only False"),
        ("llama default", {"head_dim": 8}, "head_dim = 8 is not supported, only 4"),
        ("llama default", {"sliding_window": 64}, "sliding_window = 64"),
        ("llama default", {"rope_scaling": {"type": "yarn", "factor": 2}}, "the kind 'yarn'"),
        ("bert BertModel", {"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
        ("bert BertModel", {"is_decoder": True}, "is_decoder = True"),
    ],
)
def test_what_a_configuration_says_is_understood_or_refused(folder_of, tmp_path, name, attributes, words):
    with pytest.raises(ConfigError, match=r"config\.json") as caught:
        read_folder(altered(folder_of(name)[0], tmp_path, attributes=attributes))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors.update(extra=torch.zeros(2)), "['extra'] not known (1)"),
        (lambda tensors: tensors.pop("transformer.ln_f.bias"), "['transformer.ln_f.bias'] missing (1)"),
        (lambda tensors: tensors.update({"lm_head.weight": torch.zeros(37, 24)}), "should be the same matrix"),
    ],
)
def test_weights_are_read_whole_or_refused(folder_of, tmp_path, change, words):
    with pytest.raises(RunError) as caught:
        read_folder(altered(folder_of("gpt2")[0], tmp_path, change=change))
    assert words in str(caught.value)


def test_weights_of_another_shape_write_nothing(folder_of, tmp_path):
    (tmp_path / "in").mkdir()
    path = altered(folder_of("gpt2")[0], tmp_path / "in", attributes={"n_positions": 41})
    with pytest.raises(RunError, match=r"positions.table has the shape \(40, 24\), the model \(41, 24\)"):
        import_model(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_older_words_for_rotary_positions(folder_of, tmp_path):
    path, _ = folder_of("llama llama3")
    config = json.loads((path / "config.json").read_text())
    rotation = config.pop("rope_parameters")
    older = {**config, "rope_theta": rotation.pop("rope_theta"), "rope_scaling": rotation}
    (tmp_path / "config.json").write_text(json.dumps(older))
    save_file(load_file(path / "model.safetensors"), tmp_path / "model.safetensors")
    assert read_folder(tmp_path).config == read_folder(path).config


@pytest.mark.parametrize("name", ["absent", "empty"])
def test_a_folder_without_a_model(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=name):
        import_model(tmp_path / name, tmp_path / "run")


def test_a_folder_that_is_taken_is_left_alone(folder_of, tmp_path):
    (tmp_path / "diary.txt").write_text("dear diary")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="something in it already"):
            import_model(folder_of("gpt2")[0], tmp_path, overwrite=overwrite)
    run = import_model(folder_of("gpt2")[0], tmp_path / "run")
    with pytest.raises(ConfigError, match="--overwrite"):
        import_model(folder_of("gpt2")[0], run.path)
    import_model(folder_of("llama default")[0], run.path, overwrite=True)
    assert run.read_imported().family == "llama"


def test_a_model_that_no_family_has_is_not_exported(tmp_path):
    from clearhead.config import ModelConfig
    from clearhead.models.transformer import Transformer
    from clearhead.run_folder import RunFolder
    from clearhead.training.checkpoints import save_weights_atomically

    config = ModelConfig(source_vocab=11, target_vocab=11, d_model=6, d_ff=7, n_heads=2)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.recipe.write_text("")
    folder.write_config(config)
    save_weights_atomically(Transformer(config), folder.model)
    with pytest.raises(ConfigError, match="Marian has positions = 'sinusoids_halves', but this model 'sinusoids'"):
        export_model(folder.path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
