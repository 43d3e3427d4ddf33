"""Small models of `transformers` with random weights: the references that ours are compared with."""

from __future__ import annotations

import json
import os
import warnings

import pytest
import torch

SHAPE = {"vocab_size": 37, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 17}
ROTATIONS = {
    "default": {"rope_type": "default", "rope_theta": 10_000.0},
    "another base": {"rope_type": "default", "rope_theta": 500.0},
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
}  # fmt: skip
MARIAN_CONTROL = {"pad_token_id": 36, "decoder_start_token_id": 36, "eos_token_id": 0, "forced_eos_token_id": 0}


@pytest.fixture(scope="session")
def hf():
    """The library, silent and without a network."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers", reason="the reference is the transformers library")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def make(hf, name: str):
    """A model whose every parameter is random: none could be forgotten unnoticed."""
    match name.split(" ", 1):
        case ["gpt2"]:
            config = hf.GPT2Config(
                vocab_size=37, n_positions=40, n_embd=24, n_layer=3, n_head=3, bos_token_id=1, eos_token_id=2
            )
            model = hf.GPT2LMHeadModel(config)
        case ["bert", head]:
            config = hf.BertConfig(**SHAPE, max_position_embeddings=40)
            model = getattr(hf, head)(config)
        case ["llama", rotation]:
            config = hf.LlamaConfig(
                **SHAPE, num_key_value_heads=2, max_position_embeddings=64, rope_parameters=dict(ROTATIONS[rotation]),
                tie_word_embeddings=rotation == "another base",
            )  # fmt: skip
            model = hf.LlamaForCausalLM(config)
        case ["marian"]:
            config = hf.MarianConfig(
                vocab_size=37, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3,
                decoder_attention_heads=3, encoder_ffn_dim=17, decoder_ffn_dim=17, max_position_embeddings=40,
                scale_embedding=True, activation_function="swish", **MARIAN_CONTROL,
            )  # fmt: skip
            model = hf.MarianMTModel(config)
    torch.manual_seed(0)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "embed_positions" not in path:
                parameter.normal_(std=0.3)
                if parameter.dim() == 1 and path.endswith("weight"):
                    parameter += 1
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model.eval()


MODELS = [
    "gpt2", "bert BertForMaskedLM", "bert BertForPreTraining", "bert BertModel",
    *(f"llama {rotation}" for rotation in ROTATIONS), "marian",
]  # fmt: skip


@pytest.fixture(scope="session")
def folder_of(hf, tmp_path_factory):
    """The folder that `save_pretrained` writes for a model, and the model."""
    made = {}

    def folder(name: str, **options):
        key = (name, *options.items())
        if key not in made:
            path = tmp_path_factory.mktemp("hf") / name.replace(" ", "-")
            model = make(hf, name)
            model.save_pretrained(path, **options)
            if name == "marian":
                (path / "vocab.json").write_text(json.dumps({"<unk>": 1, "</s>": 0, "<pad>": 36}))
            made[key] = path, model
        return made[key]

    return folder
