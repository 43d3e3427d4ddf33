"""`clearhead doctor`: runs, modules and Hugging Face folders; the report, JSON, and what the exit code says."""

import json
import os
import shutil
import sys

import pytest

from clearhead.doctor.catalogue import NAMES
from clearhead.text.tokenizers import train_tokenizer

QUICK = ("--quick",)


def test_a_run_is_examined_with_its_recipe_and_its_tokenizers(command, trained):
    outcome = command("doctor", trained, "--quick", "--json")
    report = json.loads(outcome.out)
    verdicts = {finding["check"]: finding["verdict"] for finding in report["findings"]}
    assert outcome.code == 0, [f for f in report["findings"] if f["verdict"] == "fault"]
    for check in ("tokenizer", "causality", "padding", "labels", "loss", "smoothing", "schedule", "cache"):
        assert verdicts[check] == "fine"
    assert verdicts["data"] == "not measured"  # the recipe's file is not there


@pytest.mark.slow
def test_a_run_with_the_checks_that_train(command, trained):
    outcome = command("doctor", trained, "--details")
    assert outcome.code == 0
    assert "No fault found" in outcome.out
    assert all(name in outcome.out for name in NAMES)


def test_a_mistake_is_named_with_its_cause_and_line(command):
    outcome = command("doctor", "clearhead.doctor.mistakes.masks:not_scaled", *QUICK)
    assert outcome.code == 1
    assert "FAULT scores" in outcome.out
    assert "likely" in outcome.out
    assert "mistakes/masks.py" in outcome.out.replace("\n", "")
    assert "1 fault, the first scores" in outcome.out


def test_a_module_of_ones_own_and_single_checks(command, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "class Mine(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.embedding, self.out = torch.nn.Embedding(23, 8), torch.nn.Linear(8, 23)\n"
        "    def forward(self, ids):\n"
        "        return self.out(self.embedding(ids).flip(1).cumsum(1).flip(1))\n"  # sums over the future
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    outcome = command("doctor", "mine:Mine", "--check", "causality", "--check", "masks", "--json")
    findings = {f["check"]: f for f in json.loads(outcome.out)["findings"]}
    assert outcome.code == 1
    assert list(findings) == ["masks", "causality"]
    assert findings["causality"]["verdict"] == "fault"
    assert findings["masks"]["verdict"] == "not measured"
    sys.modules.pop("mine", None)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("nowhere", "no such folder, and no module:function either"),
        ("nowhere.at_all:build", "can't be imported"),
        ("json:nothing", "has no 'nothing'"),
        ("json:__doc__", "not a function"),
        ("json:dumps", "without arguments"),
        (":build", "can't be imported"),
        ("..up:build", "can't be imported"),
        ("json:", "has no ''"),
        ("collections:OrderedDict", "not a torch.nn.Module"),
    ],
)
def test_targets_that_cannot_be(command, target, says):
    outcome = command("doctor", target)
    assert outcome.code == 2
    assert says in outcome.err


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def build(:", "can't be imported: SyntaxError"),
        ("x = 1 / 0", "can't be imported: ZeroDivisionError"),
        ("def build():\n    return {}['x']", "can't be called without arguments: KeyError: 'x'"),
    ],
)
def test_code_of_ones_own_that_fails(command, tmp_path, monkeypatch, code, says):
    (tmp_path / "broken.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    outcome = command("doctor", "broken:build")
    sys.modules.pop("broken", None)
    assert outcome.code == 2
    assert says in outcome.err
    assert "SyntaxError" in says or f"broken.py:{code.count(chr(10)) + 1})" in outcome.err


@pytest.mark.parametrize("spoil", [b"", b"\0" * 40, b"not safetensors at all, but long enough for a header"])
def test_a_hugging_face_folder_whose_weights_are_broken(command, tmp_path, spoil):
    pytest.importorskip("transformers", reason="needs the transformers library")
    config = {"model_type": "gpt2", "vocab_size": 53, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(spoil)
    outcome = command("doctor", tmp_path)
    assert outcome.code == 2
    assert "not a model that transformers can load" in outcome.err


@pytest.mark.parametrize("config", ["[1]", "{", '{"model_type": "nonsense"}', "3"])
def test_a_hugging_face_folder_whose_config_is_broken(command, tmp_path, config):
    if "model_type" in config:
        pytest.importorskip("transformers", reason="needs the transformers library")
    (tmp_path / "config.json").write_text(config)
    assert command("doctor", tmp_path).code == 2


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("model.safetensors", "half", "not a readable safetensors file"),
        ("config.json", "[" * 100_000, "config.json: can't be read"),
        ("config.json", '{"d_model": "x"}', "config.json: "),
        ("target.json", "{", "target.json: not a tokenizer's file"),
        ("target.json", "of another run", "they are of different runs"),
        ("recipe.toml", "[data", "recipe.toml: can't be read"),
    ],
)
@pytest.mark.parametrize("command_line", [("doctor",), ("inspect", "badge")])
def test_a_run_folder_with_a_broken_file(command, trained, tmp_path, file, content, says, command_line):
    folder = shutil.copytree(trained, tmp_path / "run")
    if content == "of another run":
        train_tokenizer("char", ["".join(map(chr, range(0x4E00, 0x4E40)))]).save(folder / file)
    elif content == "half":
        whole = (folder / file).read_bytes()
        (folder / file).write_bytes(whole[: len(whole) // 2])
    else:
        (folder / file).write_text(content)
    name, *rest = command_line
    outcome = command(name, folder, *rest)
    assert outcome.code == 2
    assert outcome.out == ""
    assert says in outcome.err
    assert outcome.err.count("\n") == 1


def test_an_imported_model_is_examined_where_it_came_from(command, tmp_path):
    (tmp_path / "imported.json").write_text("{}")
    outcome = command("doctor", tmp_path)
    assert outcome.code == 2
    assert "imported from" in outcome.err


def test_a_folder_of_neither_kind(command, tmp_path):
    outcome = command("doctor", tmp_path)
    assert outcome.code == 2
    assert "neither a run folder" in outcome.err
    assert command("doctor", "json:dumps", "--kind", "both").code == 2


def test_a_hugging_face_folder(command, tmp_path):
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers", reason="needs the transformers library")
    config = transformers.GPT2Config(
        vocab_size=53, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    outcome = command("doctor", tmp_path, "--quick", "--json")
    report = json.loads(outcome.out)
    verdicts = {finding["check"]: finding["verdict"] for finding in report["findings"]}
    assert outcome.code == 0, report
    for check in ("causality", "padding", "masks", "scores", "labels", "loss", "tied-weights", "cache", "positions"):
        assert verdicts[check] == "fine"


def test_a_hugging_face_folder_with_rotary_positions_alone(command, tmp_path):
    """One token repeated gives the same output everywhere, and rightly: only distances are seen."""
    transformers = pytest.importorskip("transformers", reason="needs the transformers library")
    config = transformers.LlamaConfig(
        vocab_size=53, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    outcome = command("doctor", tmp_path, "--check", "positions", "--details")
    assert outcome.code == 0
    assert "positions are relative" in " ".join(outcome.out.split())
