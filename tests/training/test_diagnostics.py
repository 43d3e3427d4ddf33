"""`[diagnostics]`: what is measured is right, a training is the same with and without, warnings are said once."""

import json
import math

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.models.transformer import Transformer
from clearhead.recipe import DiagnosticsSection, TrainingSection
from clearhead.run_folder import RunFolder
from clearhead.text.batches import collate
from clearhead.training.diagnostics import Diagnostics, Reading, problems, warnings_in
from clearhead.training.run import train
from clearhead.training.step import compute_gradient

SHAPE = {"d_model": 14, "d_ff": 11, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 3}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Transformer(ModelConfig(source_vocab=13, target_vocab=17, dropout=0.0, **SHAPE)).train()


@pytest.fixture
def batch():
    return collate([([4, 5, 6, 7, 8], [4, 9, 10]), ([5, 6], [7, 8, 9, 10, 11]), ([7], [12])])


def read(model, batch, *, rate=0.01, clip_norm=0.0):
    options = TrainingSection(clip_norm=clip_norm, label_smoothing=0.0)
    sums = compute_gradient(model, [batch], options, torch.device("cpu"))
    clipped = min(1.0, clip_norm / sums.norm) if clip_norm else 1.0
    said = []
    diagnostics = Diagnostics(model, DiagnosticsSection(every=1), said.append)
    with diagnostics.measuring(1, batch, clipped) as measure, torch.no_grad():
        for parameter in model.parameters():
            parameter -= rate * parameter.grad
        return measure(), said


def norm(tensors):
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))


@pytest.mark.parametrize("clip_norm", [0.0, 0.01])
def test_gradients_and_steps_are_those_of_the_update(model, batch, clip_norm):
    before = [p.detach().clone() for p in model.decoder.layers[1].parameters()]
    reading, _ = read(model, batch, clip_norm=clip_norm)
    gradients = [p.grad for p in model.decoder.layers[1].parameters()]
    # float32 holds a small step only roughly
    assert reading.update_ratios["decoder.1"] == pytest.approx(0.01 * norm(gradients) / norm(before), rel=2e-3)
    everything = norm(p.grad for p in model.parameters())
    model.zero_grad()
    compute_gradient(model, [batch], TrainingSection(clip_norm=0.0, label_smoothing=0.0), torch.device("cpu"))
    assert set(reading.gradient_norms) == {f"encoder.{i}" for i in range(2)} | {f"decoder.{i}" for i in range(3)}
    if clip_norm:
        assert everything == pytest.approx(clip_norm, rel=1e-3)
        assert reading.gradient_norms["decoder.1"] > 5 * norm(gradients)
    else:
        assert reading.gradient_norms["decoder.1"] == pytest.approx(norm(gradients), rel=1e-5)


def test_the_last_layers_activation_is_that_of_layer_normalisation(model, batch):
    """Post-norm: untrained, each position's output has the mean 0 and the variance 1."""
    reading, _ = read(model, batch, rate=0.0)
    assert reading.activations == pytest.approx(dict.fromkeys(reading.activations, 1.0), rel=1e-3)
    assert len(reading.activations) == 5


def test_even_heads_have_all_the_entropy_and_sharp_ones_none(model, batch):
    attention = model.decoder.layers[2].cross_attention
    with torch.no_grad():
        attention.w_q.weight.zero_()
        attention.w_q.bias.zero_()
    even, _ = read(model, batch, rate=0.0)
    assert even.entropies["decoder.layers.2.cross_attention"] == pytest.approx(1.0, abs=1e-6)
    assert even.uniform_heads == 2
    assert even.heads == 2 * (2 + 2 * 3)
    with torch.no_grad():
        for weight in (attention.w_q.weight, attention.w_k.weight):
            weight.normal_(std=100.0)
    sharp, _ = read(model, batch, rate=0.0)
    assert sharp.entropies["decoder.layers.2.cross_attention"] == pytest.approx(0.0, abs=1e-3)
    assert sharp.saturated_heads == 2


def test_measuring_leaves_mode_recorders_and_random_numbers_alone(model, batch):
    state = torch.get_rng_state()
    read(model, batch)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(getattr(module, "recorder", None) is None for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


def test_what_is_out_of_range_is_said_in_words():
    reading = Reading(
        gradient_norms={"encoder.0": 1e-7, "encoder.1": 1e-2, "decoder.0": 1.0, "decoder.1": 1.0},
        activations={"encoder.0": 1.0, "decoder.1": math.inf},
        update_ratios={"encoder.0": 0.2, "decoder.0": 0.001},
        heads=8,
        saturated_heads=5,
    )
    found = dict(problems(reading))
    assert set(found) == {"vanishes encoder", "step", "activation", "saturated"}
    assert "20.0%" in found["step"]
    assert "encoder.0" in found["step"]
    assert "decoder.1" in found["activation"]
    assert not list(problems(Reading(gradient_norms={"encoder.0": 1.0, "encoder.1": 2.0}, heads=8, uniform_heads=8)))


def test_a_reading_comes_back_from_its_line_of_the_log(model, batch):
    reading, said = read(model, batch, rate=30.0)
    record = {"event": "diagnostics", "update": 1, **json.loads(json.dumps(reading.record()))}
    assert Reading.from_record(record) == reading
    assert [(update, f"diagnostics at update {update}: {text}") for update, text in warnings_in([record, record])] == [
        (1, text) for text in said
    ]
    assert said
    assert not warnings_in([{**record, "event": "training"}])
    odd = {"event": "diagnostics", "update": 2, "heads": None, "activation/x": "y", "entropy": 3, "new/x": 1.0}
    assert Reading.from_record(odd) == Reading()


def test_a_warning_is_said_once_until_all_is_well_again(model):
    said = []
    diagnostics = Diagnostics(model, DiagnosticsSection(every=1), said.append)
    bad, good = Reading(update_ratios={"encoder.0": 0.5}), Reading(update_ratios={"encoder.0": 0.001})
    for reading in (bad, bad, good, good, bad):
        diagnostics.warn_of(7, reading)
    assert len(said) == 2
    assert said[0].startswith("diagnostics at update 7: one update moved the weights of encoder.0 by 50.0% of their")


def test_a_training_is_the_same_with_and_without(tiny_recipe, recorder):
    """To the bit, dropout on; and the log has a line of each measurement."""
    plain = tiny_recipe("plain", updates=6)
    seen = tiny_recipe("seen", updates=6).model_copy(update={"diagnostics": DiagnosticsSection(every=2)})
    for recipe in (plain, seen):
        train(recipe, progress=recorder)
    folders = [RunFolder(recipe.run.dir) for recipe in (plain, seen)]
    assert folders[0].model.read_bytes() == folders[1].model.read_bytes()
    records = [json.loads(line) for line in folders[1].metrics.read_text().splitlines()]
    measured = [record for record in records if record["event"] == "diagnostics"]
    assert [record["update"] for record in measured] == [2, 4, 6]
    assert set(measured[0]) == {
        "event", "update", "heads", "saturated_heads", "uniform_heads",
        "gradient_norm/encoder.0", "gradient_norm/decoder.0", "activation/encoder.0", "activation/decoder.0",
        "update_ratio/encoder.0", "update_ratio/decoder.0", "entropy/encoder.layers.0.self_attention",
        "entropy/decoder.layers.0.self_attention", "entropy/decoder.layers.0.cross_attention",
    }  # fmt: skip
    assert not [record for record in folders[0].read_metrics() if record["event"] == "diagnostics"]
    assert folders[1].read_recipe().diagnostics.every == 2


def test_tensorboard_gets_the_curves(tiny_recipe, recorder):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recipe = tiny_recipe("run", updates=4, tensorboard=True)
    recipe = recipe.model_copy(update={"diagnostics": DiagnosticsSection(every=2)})
    train(recipe, progress=recorder)
    events = EventAccumulator(str(recipe.run.dir / "tensorboard")).Reload()
    assert "diagnostics/update_ratio/encoder.0" in events.Tags()["scalars"]
    assert [event.step for event in events.Scalars("diagnostics/entropy/encoder.layers.0.self_attention")] == [2, 4]
