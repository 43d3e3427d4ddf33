"""Language models in training: documents that see only themselves, labels, resuming, what can be done with a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import clearhead
from clearhead.cli.info import describe_run
from clearhead.config import ModelConfig
from clearhead.control_tokens import EOS
from clearhead.doctor import Patient, assert_causal, examine
from clearhead.errors import ConfigError, RunError
from clearhead.inspection.text import TextInspection, look_inside_text
from clearhead.models.bert import bert_config
from clearhead.models.gpt import GPT, gpt2_config
from clearhead.models.llama import llama_config
from clearhead.models.making import make_model
from clearhead.recipe import Recipe, TrainingSection, make_recipe
from clearhead.run_folder import RunFolder
from clearhead.text.packing import Block
from clearhead.training.masked_token import MaskedToken
from clearhead.training.next_token import next_token_batch
from clearhead.training.objectives import make_objective
from clearhead.training.predictions import predict_masked, predict_next, seen_in
from clearhead.training.run import train
from clearhead.training.step import compute_gradient

CPU = torch.device("cpu")
SHAPE = {"d_model": 16, "d_ff": 16, "n_heads": 2}
WORDS = "the cat sat on a mat and saw one big red dog that ran far away from it".split()  # noqa: SIM905
SMALL = {"vocabulary": 31, "d_model": 24, "d_ff": 17, "n_heads": 6}
CONFIGS = {
    "gpt2": gpt2_config(**SMALL, decoder_layers=2, max_positions=40, dropout=0.0),
    "gpt2 with sinusoids": gpt2_config(**SMALL, decoder_layers=2, positions="sinusoids", dropout=0.0),
    "llama": llama_config(**SMALL, decoder_layers=2, kv_heads=2),
    "bert": bert_config(**SMALL, encoder_layers=2, max_positions=40, heads="masked_token", dropout=0.0),
}


@pytest.fixture
def text_recipe(tmp_path: Path) -> Callable[..., Recipe]:
    """`text_recipe("run", family="bert", updates=3)`: a model that is trained in milliseconds on 120 short lines."""
    rng = np.random.default_rng(1)
    lines = [" ".join(rng.choice(WORDS, size=int(rng.integers(3, 12)))) for _ in range(120)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")

    def make(
        name: str = "run", family: str = "gpt2", *, data: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None, **training: Any,
    ) -> Recipe:  # fmt: skip
        layers = "encoder_layers" if family == "bert" else "decoder_layers"
        options = {"batch_tokens": 128, "warmup": 5, "validate_every": 4, "device": "cpu", "threads": 1, "samples": 1}
        return make_recipe(
            {
                "run": {"dir": str(tmp_path / name), "seed": 3},
                "data": {
                    "train": {"text": "text.txt", "documents": "lines"}, "root": str(tmp_path), "block_length": 32,
                    **(data or {}),
                },
                "tokenizer": {"vocab_size": 280},
                "model": {"family": family, layers: 1, **SHAPE, "dropout": 0.2, **(model or {})},
                "training": {**options, **training},
            }
        )  # fmt: skip

    return make


def packed(documents: list[list[int]]) -> Block:
    """Documents in one block, as `BlockPlan` makes them."""
    return Block(
        np.concatenate([np.array(ids) for ids in documents]),
        np.concatenate([np.array([*ids[1:], -1]) for ids in documents]),
        np.repeat(np.arange(len(documents)), [len(ids) for ids in documents]),
        np.concatenate([np.arange(len(ids)) for ids in documents]),
    )


def model_of(name: str) -> torch.nn.Module:
    torch.manual_seed(4)
    model = make_model(CONFIGS[name]).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # far from the beginning, where next to nothing depends on anything
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def logits_of(model: torch.nn.Module, documents: list[list[int]]) -> torch.Tensor:
    """`(t, v)`: what the packed forward pass says at every place."""
    batch = next_token_batch([packed(documents)], [0])
    mask, start = seen_in(batch)
    if isinstance(model, GPT):
        return model(batch.ids, None, mask, start)[0]
    return model.masked_token_logits(model(batch.ids, mask=mask, start=start))[0]


A, B, C = [5, 6, 7, 8, 9], [10, 11, 12], [13, 14, 15, 16, 17, 18, 19]


@pytest.mark.parametrize("name", list(CONFIGS))
def test_documents_in_a_block_do_not_see_each_other(name: str) -> None:
    """Tokens of one document change: the others' logits are equal, to the bit."""
    model = model_of(name)
    with torch.no_grad():
        before = logits_of(model, [A, B, C])
        after = logits_of(model, [A, [20, 21, 22], C])
    assert torch.equal(before[:5], after[:5])
    assert torch.equal(before[8:], after[8:])
    assert not torch.allclose(before[5:8], after[5:8], atol=0.1)


@pytest.mark.parametrize("name", list(CONFIGS))
def test_no_gradient_flows_from_one_document_to_another(name: str) -> None:
    model = model_of(name)
    kept: list[torch.Tensor] = []

    def keep(module: torch.nn.Module, arguments: object, output: torch.Tensor) -> torch.Tensor:
        kept.append(output.detach().requires_grad_())
        return kept[-1]

    handle = model.embedding.register_forward_hook(keep)
    logits = logits_of(model, [A, B, C])
    handle.remove()
    (gradient,) = torch.autograd.grad(logits[5:8].square().sum(), kept)
    reached = gradient[0].abs().sum(-1) > 0
    assert reached.tolist() == [False] * 5 + [True] * 3 + [False] * 7


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_document_in_a_block_is_as_it_is_alone(name: str) -> None:
    model = model_of(name).double()
    with torch.no_grad():
        together = logits_of(model, [A, B, C])
        alone = torch.cat([logits_of(model, [document]) for document in (A, B, C)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)


def second_half_first(model: torch.nn.Module, ids: torch.Tensor, *, hidden: bool = True) -> torch.Tensor:
    """A text cut in two documents, the second of which stands in front of the first: a block may have them in any
    order. Causality alone would let the first half see the second."""
    half = ids.size(1) // 2
    rows = []
    for row in ids.tolist():
        block = packed([row[half:], row[:half]])
        mask, start = seen_in(next_token_batch([block], [0])) if hidden else (None, 0)
        logits = model(torch.from_numpy(block.ids)[None], None, mask, start)[0]
        rows.append(torch.cat([logits[ids.size(1) - half :], logits[: ids.size(1) - half]]))
    return torch.stack(rows)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_doctor_finds_no_leak_in_packed_blocks_and_would_find_one(name: str) -> None:
    def patient(**how: bool) -> Patient:
        return Patient(
            build=lambda: model_of(name), kind="decoder", vocabulary=31,
            call=lambda model, ids: second_half_first(model, ids, **how),
        )  # fmt: skip

    assert_causal(patient())
    finding = examine(patient(hidden=False), checks=["causality"])["causality"]
    assert finding.is_fault


def test_the_loss_of_a_block_is_that_of_its_documents() -> None:
    """Against torch's own cross-entropy, each document by itself."""
    model = model_of("gpt2").double()
    batch = next_token_batch([packed([A, B]), packed([C])], [0, 1])
    sums = compute_gradient(model, [batch], TrainingSection(label_smoothing=0.0, clip_norm=0), CPU, predict_next)
    total = sum(
        F.cross_entropy(model(torch.tensor([ids]))[0, :-1], torch.tensor(ids[1:]), reduction="sum") for ids in (A, B, C)
    )
    assert sums.tokens == 4 + 2 + 6
    assert sums.loss == pytest.approx(total.item() / 12, rel=1e-9)


def test_a_bias_of_the_output_is_part_of_loss_and_gradient() -> None:
    """BERT's head has one, and Marian's projection: loss and all gradients against autograd's own."""
    model = model_of("bert").double()
    batch = next_token_batch([packed([A, B])], [0])
    sums = compute_gradient(model, [batch], TrainingSection(label_smoothing=0.0, clip_norm=0), CPU, predict_masked)
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    mask, start = seen_in(batch)
    logits = model.masked_token_logits(model(batch.ids, mask=mask, start=start)).flatten(0, 1)[batch.rows]
    loss = F.cross_entropy(logits, batch.labels)
    loss.backward()
    assert sums.loss == pytest.approx(loss.item(), rel=1e-9)
    assert found["head.projection.bias"].abs().max() > 1e-3
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, rtol=0, atol=1e-12)


def test_masked_batches_are_a_function_of_seed_epoch_and_place(text_recipe, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    objective = make_objective(text_recipe(family="bert"), RunFolder(tmp_path / "run"), CPU, lambda text: None)
    assert isinstance(objective, MaskedToken)
    batches = [objective.epoch(epoch).batch(1) for epoch in (0, 0, 1)]
    for name in ("ids", "labels", "rows"):
        assert torch.equal(getattr(batches[0], name), getattr(batches[1], name))
    assert not (batches[0].ids.shape == batches[2].ids.shape and torch.equal(batches[0].ids, batches[2].ids))
    mask = objective.data.tokenizer.control.mask
    asked = batches[0].ids.flatten()[batches[0].rows]
    assert (asked == mask).any()
    assert not (batches[0].labels == mask).any()
    ordinary = set(range(4, objective.data.tokenizer.vocab_size - 1))
    assert set(batches[0].labels.tolist()) <= ordinary


def last_checkpoint(folder: RunFolder) -> dict[str, torch.Tensor]:
    return load_file(max(folder.checkpoints.glob("checkpoint-*")))


# case T1
# case T2
@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_a_resumed_run_equals_an_uninterrupted_one(text_recipe, recorder, family: str) -> None:
    whole = train(text_recipe("whole", family, updates=11), progress=recorder)
    train(text_recipe("parts", family, updates=6), progress=recorder)
    second = train(text_recipe("parts", family, updates=11), resume=True, progress=recorder)
    found, expected = last_checkpoint(second.folder), last_checkpoint(whole.folder)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert second.summary["value"] == whole.summary["value"]


def inspect_loaded(loaded: Any, text: str) -> TextInspection:
    """As `clearhead inspect` looks into it."""
    tokenizer = loaded.tokenizer
    ids = tokenizer.encode(text)
    names = tokenizer.tokens(range(tokenizer.vocab_size))
    return look_inside_text(loaded.model, ids, tokenizer.tokens(ids), names)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_a_trained_run_can_be_used(text_recipe, recorder, family: str, tmp_path: Path) -> None:
    """It learns something; every command's function takes it; and transformers gets the same logits of the export."""
    recipe = text_recipe(
        family=family, updates=60, peak_rate=0.01, validate_every=20, average=2, log_every=20,
        model={"dropout": 0.0}, metric="masked_accuracy" if family == "bert" else "loss",
    )  # fmt: skip
    folder = train(recipe, progress=recorder).folder
    losses = [found.loss for _, found, _ in recorder.validations]
    assert losses[-1] < losses[0]
    assert recorder.validations[-1][1].samples
    assert describe_run(folder)["training"]["update"] == 60
    record = [record for record in folder.read_metrics() if record["event"] == "validation"][-1]
    assert record["perplexity"] == pytest.approx(np.exp(record["loss"]))
    loaded = clearhead.load(folder.path, device="cpu")
    if family == "bert":
        assert 0 < record["masked_accuracy"] <= 100
        (guesses,) = loaded.fill_mask("the cat [MASK] on", n_best=3)
        assert len(guesses) == 3
        assert loaded.vectors(["the cat", "a dog"]).shape == (2, 16)
    else:
        (score,) = loaded.score(["the cat sat"])
        assert score.log_probability < 0
        assert loaded.generate("the cat", max_new_tokens=4) == "".join(loaded.stream("the cat", max_new_tokens=4))
    inspection = inspect_loaded(loaded, "the cat sat")
    torch.testing.assert_close(inspection.maps.sum(-1), torch.ones(inspection.maps.shape[:3]))
    assert inspection.maps.triu(1).any() == (family == "bert")
    if family != "bert":
        total = np.log(inspection.probabilities).sum()
        assert total == pytest.approx(loaded.score(["the cat sat"])[0].log_probability, rel=1e-4)
    report = examine(str(folder.path), training=False)
    assert not [(finding.check, finding.measured) for finding in report.findings if finding.is_fault]

    transformers = pytest.importorskip("transformers")
    from clearhead.interchange.importing import export_model

    export_model(folder.path, tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    ids = tokenizer("the cat sat on a mat")["input_ids"]
    assert ids == loaded.tokenizer.encode("the cat sat on a mat")
    kind = transformers.AutoModelForMaskedLM if family == "bert" else transformers.AutoModelForCausalLM
    theirs = kind.from_pretrained(tmp_path / "hf").eval()
    with torch.no_grad():
        ours = loaded.model(torch.tensor([ids]))
        ours = loaded.model.masked_token_logits(ours) if family == "bert" else ours
        torch.testing.assert_close(ours, theirs(torch.tensor([ids])).logits, rtol=0, atol=1e-5)


def test_diagnostics_of_a_language_model_change_nothing(text_recipe, recorder) -> None:
    plain = train(text_recipe("plain", updates=6), progress=recorder)
    recipe = text_recipe("watched", updates=6)
    recipe = recipe.model_copy(update={"diagnostics": recipe.diagnostics.model_copy(update={"every": 2})})
    watched = train(recipe, progress=recorder)
    expected, found = last_checkpoint(plain.folder), last_checkpoint(watched.folder)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    readings = [record for record in watched.folder.read_metrics() if record["event"] == "diagnostics"]
    assert [record["update"] for record in readings] == [2, 4, 6]
    assert readings[0]["heads"] == 2
    assert 0 < readings[0]["entropy/decoder.layers.0.self_attention"] <= 1


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("marian", {}, "set model.family to gpt2, llama or bert"),
        ("gpt2", {"metric": "bleu"}, "has loss"),
        ("gpt2", {"label_smoothing": 0.1}, "learns by the plain loss; set 0"),
        ("gpt2", {"batch_tokens": 31}, "can't hold a block of data.block_length = 32"),
        ("gpt2", {"model": {"max_positions": 31}}, "but the model has 31 positions"),
        ("bert", {"model": {"heads": "pooler"}}, "masked tokens are learned by heads"),
        ("gpt2", {"data": {"valid_pairs": 3}}, "of texts set valid_split"),
        ("gpt2", {"data": {"valid": {"pairs": "a.tsv"}}}, "there are pairs and texts in it"),
        ("gpt5", {}, "model.family = 'gpt5': choose one of gpt2, llama, bert, marian"),
    ],
)
def test_what_does_not_fit_is_refused(text_recipe, family: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        text_recipe(family=family, **changes)
    assert message in str(caught.value)


def test_the_plain_loss_is_the_default_and_written_down(text_recipe) -> None:
    assert text_recipe().training.label_smoothing == 0.0


# case D11
def test_a_single_document_is_validated_on_and_said_so(text_recipe, recorder) -> None:
    outcome = train(text_recipe(updates=2, data={"train": {"text": "text.txt"}}), progress=recorder)
    assert outcome.summary["update"] == 2
    assert any("validating on the training text" in message for message in recorder.messages)


# ---- beginning with other weights -----------------------------------------------------------------------------------


def started(recipe: Recipe, origin: Path, **model: Any) -> Recipe:
    """A recipe that takes everything but the data from another run."""
    tables = recipe.model_dump(mode="json", exclude_none=True)
    del tables["tokenizer"]
    return make_recipe({**tables, "model": {"start_from": str(origin), **model}})


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_a_run_begins_with_another_ones_weights(text_recipe, recorder, family: str) -> None:
    first = train(text_recipe("first", family, updates=8), progress=recorder).folder
    recipe = started(text_recipe("second", family, updates=2, peak_rate=1e-30, average=0), first.path, dropout=0.0)
    second = train(recipe, progress=recorder).folder
    before, after = load_file(first.model), load_file(second.model)
    assert before.keys() == after.keys()
    assert all(torch.allclose(after[name], tensor, atol=1e-7) for name, tensor in before.items())
    assert second.read_config().dropout == 0.0
    assert (second.path / "tokenizer.json").read_bytes() == (first.path / "tokenizer.json").read_bytes()
    clearhead.load(second.path, device="cpu")
    first.path.rename(first.path.with_name("moved"))  # what was begun needs its beginning no more
    longer = recipe.model_copy(update={"training": recipe.training.model_copy(update={"updates": 4})})
    assert train(longer, resume=True, progress=recorder).summary["update"] == 4


def test_a_translation_model_begins_with_another_ones_weights(tiny_recipe, recorder) -> None:
    first = train(tiny_recipe("first", updates=8), progress=recorder).folder
    recipe = started(tiny_recipe("second", updates=2, peak_rate=1e-30, average=0), first.path)
    second = train(recipe, progress=recorder).folder
    before, after = load_file(first.model), load_file(second.model)
    assert all(torch.allclose(after[name], tensor, atol=1e-7) for name, tensor in before.items())
    assert clearhead.load(second.path, device="cpu").translate("abc") == clearhead.load(first.path).translate("abc")


def test_shapes_and_folders_that_do_not_fit_are_refused(text_recipe, recorder, tmp_path: Path) -> None:
    first = train(text_recipe("first", updates=2), progress=recorder).folder
    second = text_recipe("second", updates=2)
    with pytest.raises(RunError, match=r"start_from: .*first.model.safetensors: .*w_1.weight has the shape \(16, 16\)"):
        train(started(second, first.path, d_ff=32), progress=recorder)
    with pytest.raises(RunError, match=r"start_from: .*absent: no such run folder"):
        train(started(second, tmp_path / "absent"), progress=recorder)
    with pytest.raises(ConfigError, match="is the run folder itself"):
        train(started(text_recipe("first"), first.path), overwrite=True, progress=recorder)
    assert first.model.exists()


def test_an_imported_model_is_trained_on(text_recipe, recorder, tmp_path: Path) -> None:
    """A GPT-2 of transformers with a tokenizer of its own: it goes on with its ids and its end token."""
    transformers = pytest.importorskip("transformers")
    from clearhead.interchange.importing import import_model
    from clearhead.text.language_tokenizer import train_language_tokenizer

    torch.manual_seed(0)
    sizes = {"vocab_size": 300, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 48}
    config = transformers.GPT2Config(**sizes, bos_token_id=2, eos_token_id=2)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "hf")
    made, _ = train_language_tokenizer("byte", [], vocab_size=None, reads_whole_texts=False)
    (tmp_path / "hf" / "tokenizer.json").write_text(made)
    origin = import_model(tmp_path / "hf", tmp_path / "imported")
    outcome = train(started(text_recipe("second", updates=3), origin.path), progress=recorder)
    assert outcome.summary["update"] == 3
    assert outcome.folder.read_config() == ModelConfig.from_dict(origin.read_config().to_dict())
    assert outcome.folder.read_control()["end"] == [EOS]
    loaded = clearhead.load(outcome.folder.path, device="cpu")
    assert isinstance(loaded.generate("the", max_new_tokens=2), str)
