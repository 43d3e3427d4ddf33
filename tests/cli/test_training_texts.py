"""A model of texts from recipe to use, by the commands alone."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

RECIPE = """
[data]
train = {{ text = "*.txt", documents = "lines" }}
root = "{root}"
block_length = 16
[tokenizer]
kind = "char"
[model]
family = "{family}"
{layers} = 1
d_model = 16
d_ff = 16
n_heads = 2
[training]
updates = 6
batch_tokens = 64
validate_every = 3
warmup = 2
device = "cpu"
threads = 1
"""


@pytest.fixture
def train(command, tmp_path: Path):
    """`train("gpt2")` writes texts and a recipe, trains it, and gives the run folder and what was printed."""
    (tmp_path / "a.txt").write_text("a cat sat\n" * 3 + "a dog ran\n" * 3 + "<s> </s>\n")
    (tmp_path / "b.txt").write_text("".join(f"a {word} sat here\n" for word in ("mat", "hat", "rat", "bat", "cat")))

    def run(family: str) -> tuple[Path, str]:
        layers = "encoder_layers" if family == "bert" else "decoder_layers"
        recipe = tmp_path / "recipe.toml"
        recipe.write_text(RECIPE.format(root=tmp_path.as_posix(), family=family, layers=layers))
        found = command("train", recipe, "--set", f"run.dir={tmp_path / family}")
        assert found.code == 0, found.err
        return tmp_path / family, found.out

    return run


def test_a_gpt_by_the_commands(train, command, tmp_path: Path) -> None:
    folder, said = train("gpt2")
    assert said.endswith(f'To use it: clearhead generate {folder} "…"\n')
    assert "1 with <pad>, </s> or the like, taken as ordinary text (a.txt line 7)" in said
    assert ", perplexity " in said
    assert command("generate", folder, "a cat", "--max-new-tokens", "4").code == 0
    (tmp_path / "lines.txt").write_text("a cat sat\na dog\n")
    rows = [line.split("\t") for line in command("score", folder, "--text", tmp_path / "lines.txt").lines]
    assert [int(tokens) for _, tokens, _ in rows] == [9, 5]
    assert float(rows[0][2]) == pytest.approx(math.exp(-float(rows[0][0]) / 9), rel=1e-3)
    assert json.loads(command("info", folder, "--json").out)["training"]["update"] == 6
    shown = command("inspect", folder, "a cat").out
    assert "self-attention" in shown
    assert "probability" in shown
    for name, options in (("map.png", ["--layer", "0"]), ("grid.png", ["--grid"])):
        assert command("inspect", folder, "a cat", "--png", tmp_path / name, *options).code == 0
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert command("doctor", folder, "--quick").code == 0
    assert command("export", folder, "--to", "hf", "-o", tmp_path / "hf").code == 0
    assert json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())["bos_token"] == "<s>"
    again = command("import", tmp_path / "hf", "--to", tmp_path / "again")
    assert again.code == 0, again.err
    prompt = ("a dog", "--max-new-tokens", "6", "--json")
    assert command("generate", tmp_path / "again", *prompt).out == command("generate", folder, *prompt).out
    refused = command("translate", folder, "a cat")
    assert refused.code == 2
    assert "doesn't translate" in refused.err


def test_a_bert_by_the_commands(train, command, tmp_path: Path) -> None:
    folder, said = train("bert")
    assert said.endswith(f'To use it: clearhead fill-mask {folder} "… [MASK] …"\n')
    assert "masked accuracy" in said
    assert len(command("fill-mask", folder, "a [MASK]at sat", "--n-best", "3").lines) == 3
    assert len(command("vectors", folder, "a cat", "a dog").lines) == 2
    assert "self-attention" in command("inspect", folder, "a [MASK]at").out
    assert command("doctor", folder, "--quick").code == 0
    assert command("export", folder, "--to", "hf", "-o", tmp_path / "hf").code == 0
    refused = command("inspect", folder, "a cat", "--html", tmp_path / "x.html")
    assert refused.code == 2
