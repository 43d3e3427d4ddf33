"""The loop: resuming, skipping, stopping early, validating without a trace."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from clearhead.errors import RunError
from clearhead.models.transformer import Transformer, load_weights
from clearhead.recipe import Recipe
from clearhead.run_folder import RunFolder
from clearhead.training.metrics_log import MetricsLog
from clearhead.training.objectives import make_objective
from clearhead.training.progress import UpdateLine
from clearhead.training.run import Outcome, train
from clearhead.training.schedules import learning_rate
from clearhead.training.stopping import StopSignals
from clearhead.training.stream import BatchStream
from clearhead.training.trainer import Trainer
from clearhead.training.validation import is_better

CPU = torch.device("cpu")
MakeRecipe = Callable[..., Recipe]


def make_trainer(recipe: Recipe, recorder, stop: StopSignals | None = None) -> Trainer:
    """As `train` makes it, to be looked into."""
    folder = RunFolder(recipe.run.dir)
    folder.path.mkdir()
    objective = make_objective(recipe, folder, CPU, recorder.message)
    torch.manual_seed(recipe.run.seed)
    model = Transformer(objective.config)
    return Trainer(recipe, folder, objective, model, device=CPU, progress=recorder, stop=stop or StopSignals())


def last_checkpoint(outcome: Outcome) -> dict[str, torch.Tensor]:
    """Every tensor of the newest checkpoint: weights, moments, random numbers."""
    return load_file(max(outcome.folder.checkpoints.glob("checkpoint-*")))


def assert_equal_tensors(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def training_records(folder: RunFolder) -> list[dict[str, object]]:
    """What the log says, without the times."""
    timed = {"seconds", "tokens_per_second"}
    return [{k: v for k, v in record.items() if k not in timed} for record in folder.read_metrics()]


# case T1
# case T2
@pytest.mark.parametrize(("accumulate", "stop_after"), [(1, 4), (1, 11), (3, 5)])
def test_a_resumed_run_equals_an_uninterrupted_one(
    tiny_recipe: MakeRecipe, recorder, accumulate: int, stop_after: int
) -> None:
    """Bit by bit: weights, moments, random numbers, rates and losses; with dropout, inside and at the end of epochs."""
    options = {"accumulate": accumulate, "patience": 50, "log_every": 2}
    whole = train(tiny_recipe("whole", updates=13, **options), progress=recorder)
    first = train(tiny_recipe("parts", updates=stop_after, **options), progress=recorder)
    assert first.summary["update"] == stop_after
    second = train(tiny_recipe("parts", updates=13, **options), resume=True, progress=recorder)
    assert_equal_tensors(last_checkpoint(second), last_checkpoint(whole))
    assert_equal_tensors(load_file(second.folder.model), load_file(whole.folder.model))
    assert training_records(second.folder) == training_records(whole.folder)
    timed = {"seconds", "tokens_per_second"}
    assert {k: v for k, v in second.summary.items() if k not in timed} == {
        k: v for k, v in whole.summary.items() if k not in timed
    }


class Interrupting:
    """A progress display that sends this process a signal when an update is done."""

    def __init__(self, recorder, update: int, number: signal.Signals) -> None:
        self.recorder, self.at, self.number = recorder, update, number
        self.message, self.validation, self.close = recorder.message, recorder.validation, recorder.close

    def update(self, line: UpdateLine, *, is_due: bool) -> None:
        self.recorder.update(line, is_due=is_due)
        if line.update == self.at:
            os.kill(os.getpid(), self.number)


# case T1
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("update", [3, 8])  # 8 breaks a validation off, which is made up for
def test_a_signal_saves_and_the_run_can_go_on(
    tiny_recipe: MakeRecipe, recorder, number: signal.Signals, update: int
) -> None:
    whole = train(tiny_recipe("whole", updates=10), progress=recorder)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stopped = train(tiny_recipe("parts", updates=10), progress=Interrupting(recorder, update, number))
    assert stopped.stopped_by == number
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert f"stopped by {number.name} at update {update}" in recorder.messages[-1]
    assert "--resume" in recorder.messages[-1]
    assert stopped.folder.read_summary() is None
    resumed = train(tiny_recipe("parts", updates=10), resume=True, progress=recorder)
    assert_equal_tensors(last_checkpoint(resumed), last_checkpoint(whole))
    assert_equal_tensors(load_file(resumed.folder.model), load_file(whole.folder.model))
    assert training_records(resumed.folder) == training_records(whole.folder)


# case T11
def test_a_truncated_checkpoint_costs_only_time(tiny_recipe: MakeRecipe, recorder) -> None:
    whole = train(tiny_recipe("whole", updates=12), progress=recorder)
    parts = train(tiny_recipe("parts", updates=9), progress=recorder)
    newest = max(parts.folder.checkpoints.glob("checkpoint-*"))
    newest.write_bytes(newest.read_bytes()[:-100])
    resumed = train(tiny_recipe("parts", updates=12), resume=True, progress=recorder)
    assert any(str(newest) in message and "broken" in message for message in recorder.messages)
    assert "going on at update 8" in recorder.messages
    assert_equal_tensors(last_checkpoint(resumed), last_checkpoint(whole))
    assert_equal_tensors(load_file(resumed.folder.model), load_file(whole.folder.model))


# case T2
def test_each_example_comes_once_an_epoch_wherever_the_stream_begins(tiny_recipe: MakeRecipe, recorder) -> None:
    objective = make_trainer(tiny_recipe(), recorder).objective
    corpus = objective.data.train
    stream = BatchStream(objective.epoch)
    count = len(stream.plan)
    first_epoch = [stream.next().indices for _ in range(count)]
    assert sorted(index for indices in first_epoch for index in indices) == list(range(len(corpus)))
    at_the_end = BatchStream(objective.epoch, epoch=stream.epoch, batch=stream.batch)  # exactly between two epochs
    second_epoch = [stream.next().indices for _ in range(len(at_the_end.plan))]
    in_the_middle = BatchStream(objective.epoch, epoch=0, batch=count - 2)
    for expected in [*first_epoch[-2:], *second_epoch[:3]]:
        assert in_the_middle.next().indices.tolist() == expected.tolist()
    for expected in second_epoch[:3]:
        assert at_the_end.next().indices.tolist() == expected.tolist()
    assert [list(i) for i in first_epoch[:3]] != [list(i) for i in second_epoch[:3]]


# case T5
def test_the_rates_are_those_of_the_formula(tiny_recipe: MakeRecipe, recorder) -> None:
    train(tiny_recipe(updates=6, schedule="paper", warmup=3), progress=recorder)
    rates = [line.learning_rate for line in recorder.lines]
    assert rates == [16**-0.5 * min(update**-0.5, update * 3**-1.5) for update in range(1, 7)]


# case M12
def test_validation_leaves_no_trace_in_the_training(tiny_recipe: MakeRecipe, recorder) -> None:
    often = train(tiny_recipe("often", updates=8, validate_every=1, metric="exact_match"), progress=recorder)
    never = train(tiny_recipe("never", updates=8, validate_every=100, save_every=8), progress=recorder)
    assert_equal_tensors(last_checkpoint(often), last_checkpoint(never))


# case M12
def test_the_validation_loss_does_not_depend_on_what_ran_before(tiny_recipe: MakeRecipe, recorder) -> None:
    trainer = make_trainer(tiny_recipe(model={"attention_dropout": 0.5}), recorder)
    trainer.model.train()
    first = trainer.objective.validate(trainer.model, lambda: None)
    torch.rand(17)
    second = trainer.objective.validate(trainer.model, lambda: None)
    assert dataclasses.replace(first, seconds=0.0) == dataclasses.replace(second, seconds=0.0)
    assert trainer.model.training


# case T10
def test_the_largest_batch_is_tried_without_a_trace(tiny_recipe: MakeRecipe, recorder) -> None:
    trainer = make_trainer(tiny_recipe(), recorder)
    trainer.model.train()
    before = torch.get_rng_state()
    trainer.try_largest_batch()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.grad is None for p in trainer.model.parameters())
    assert trainer._stream.batch == 0
    stream = trainer._stream
    cells = [batch.source.numel() + batch.labels.numel() for batch in (stream.next() for _ in range(len(stream.plan)))]
    largest = BatchStream(trainer.objective.epoch).largest()
    assert largest.source.numel() + largest.labels.numel() == max(cells)


def poison_gradients(model: Transformer, when: Callable[[int], bool]) -> None:
    """Make one gradient infinite in those backward passes (counted from 1)."""
    passes = iter(range(1, 10_000))
    model.projection.weight.register_hook(lambda gradient: gradient * float("inf") if when(next(passes)) else gradient)


# case T9
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_infinite_gradient_is_skipped_and_counted(tiny_recipe: MakeRecipe, recorder, precision: str) -> None:
    recipe = tiny_recipe(updates=6, precision=precision)
    trainer = make_trainer(recipe, recorder)
    poison_gradients(trainer.model, lambda number: number == 3)
    with MetricsLog(trainer.folder.metrics) as log:
        trainer.run(log)
    assert trainer.state.update == 6
    assert trainer.state.skipped == 1
    assert [line.update for line in recorder.lines] == [1, 2, 3, 4, 5, 6]
    expected = [learning_rate("inverse_sqrt", update, peak=1e-3, warmup=5) for update in range(1, 7)]
    assert [line.learning_rate for line in recorder.lines] == expected
    assert trainer.optimizer.param_groups[0]["lr"] == expected[-1]
    assert any(message.startswith("skipped update 3: loss ") for message in recorder.messages)
    assert all(p.isfinite().all() for p in trainer.model.parameters())
    assert all(step == 6 for step in (s["step"] for s in trainer.optimizer.state.values()))


# case T9
def test_too_many_in_a_row_end_the_run_and_the_good_checkpoint_stays(tiny_recipe: MakeRecipe, recorder) -> None:
    trainer = make_trainer(tiny_recipe(updates=50, max_skipped=4), recorder)
    poison_gradients(trainer.model, lambda number: number > 5)
    with MetricsLog(trainer.folder.metrics) as log, pytest.raises(RunError, match="4 updates in a row had no finite"):
        trainer.run(log)
    assert trainer.state.update == 5
    assert trainer.checkpoints.updates() == [4]
    saved = load_file(trainer.checkpoints.checkpoint_path(4))
    assert all(tensor.isfinite().all() for tensor in saved.values())


# case T9
def test_weights_that_are_no_numbers_are_never_saved(tiny_recipe: MakeRecipe, recorder) -> None:
    class Poisoning(Interrupting):
        def update(self, line: UpdateLine, *, is_due: bool) -> None:
            if line.update == 8:  # where both a validation and a checkpoint are due
                with torch.no_grad():
                    trainer.model.encoder.layers[0].feed_forward.w_1.weight[0, 0] = float("nan")

    trainer = make_trainer(tiny_recipe(updates=50), Poisoning(recorder, 0, signal.SIGINT))
    with MetricsLog(trainer.folder.metrics) as log, pytest.raises(RunError, match="no longer finite at update 8"):
        trainer.run(log)
    assert trainer.checkpoints.updates() == [4]
    assert all(tensor.isfinite().all() for tensor in load_file(trainer.folder.model).values())


# case T13
def test_the_direction_follows_the_metric_and_a_tie_is_no_improvement() -> None:
    for metric in ("loss", "wer", "per"):
        assert is_better(metric, 1.0, 2.0)
        assert not is_better(metric, 2.0, 1.0)
    for metric in ("bleu", "chrf2", "exact_match"):
        assert is_better(metric, 2.0, 1.0)
        assert not is_better(metric, 1.0, 2.0)
    assert is_better("bleu", 0.0, None)
    assert not is_better("loss", 1.0, 1.0)
    assert not is_better("loss", float("nan"), 1.0)
    assert not is_better("loss", float("nan"), None)


# case T13
@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "constant", "paper"])
@pytest.mark.parametrize("patience", [1, 2])
def test_patience_counts_validations(tiny_recipe: MakeRecipe, recorder, schedule: str, patience: int) -> None:
    """The exact match stays 0 for the first few updates: the first validation is the best, all others are ties."""
    recipe = tiny_recipe(
        updates=60, metric="exact_match", patience=patience, schedule=schedule, peak_rate=1e-6, validate_every=3,
        save_every=60, warmup=100_000_000,
    )  # fmt: skip
    outcome = train(recipe, progress=recorder)
    values = [(update, found.value, is_best) for update, found, is_best in recorder.validations]
    assert values == [(3, 0.0, True), *((3 * n, 0.0, False) for n in range(2, patience + 2))]
    assert outcome.summary["update"] == 3 * (patience + 1)
    assert "patience" in outcome.summary["reason"]
    assert outcome.summary["best_update"] == 3


# case T13
def test_the_model_that_is_kept_is_the_best(tiny_recipe: MakeRecipe, recorder) -> None:
    """With a rate that is far too high later on, the best is not the last."""
    recipe = tiny_recipe(updates=40, peak_rate=0.3, warmup=40, average=0, validate_every=2)
    outcome = train(recipe, progress=recorder)
    losses = {update: found.loss for update, found, _ in recorder.validations}
    best = min(losses, key=losses.__getitem__)
    assert best < 40
    assert outcome.summary["best_update"] == best
    assert outcome.summary["weights"] == f"the best weights, of update {best}"
    assert loss_of(outcome.folder, recipe) == pytest.approx(losses[best], rel=1e-6)


def test_the_average_is_kept_if_it_is_better(tiny_recipe: MakeRecipe, recorder) -> None:
    recipe = tiny_recipe(updates=24, average=3, peak_rate=0.02, schedule="constant")
    outcome = train(recipe, progress=recorder)
    three = [load_file(outcome.folder.checkpoints / f"weights-{u:07}.safetensors") for u in (16, 20, 24)]
    average = {name: torch.stack([w[name] for w in three]).double().mean(0).float() for name in three[0]}
    kept = load_file(outcome.folder.model)
    is_average = all(torch.allclose(kept[name], average[name], atol=1e-7) for name in kept)
    (averaged,) = [record for record in outcome.folder.read_metrics() if record["event"] == "averaged"]
    best = min(found.loss for _, found, _ in recorder.validations)
    assert is_average == (averaged["loss"] < best)
    assert outcome.summary["value"] == min(averaged["loss"], best)
    assert loss_of(outcome.folder, recipe) == pytest.approx(outcome.summary["value"], rel=1e-6)


def loss_of(folder: RunFolder, recipe: Recipe) -> float:
    """The validation loss of the weights that a run hands over."""
    objective = make_objective(recipe, folder, CPU, lambda text: None)
    model = Transformer(folder.read_config())
    load_weights(model, folder.model)
    with torch.no_grad():
        return objective.loss_on(model.eval(), objective.data.valid, lambda: None)


def test_a_usable_model_exists_after_the_first_validation(tiny_recipe: MakeRecipe, recorder) -> None:
    stopped = train(tiny_recipe(updates=50), progress=Interrupting(recorder, 6, signal.SIGTERM))
    weights = load_file(stopped.folder.model)
    expected = load_file(stopped.folder.checkpoints / "weights-0000004.safetensors")
    assert_equal_tensors(weights, expected)


def test_another_batch_size_can_be_resumed_with(tiny_recipe: MakeRecipe, recorder) -> None:
    train(tiny_recipe(updates=3), progress=recorder)
    outcome = train(tiny_recipe(updates=5, batch_tokens=96), resume=True, progress=recorder)
    assert outcome.summary["update"] == 5
    assert any("batch_tokens is now 96, it was 64" in message for message in recorder.messages)
    assert recorder.lines[-1].epoch == 2


def test_the_limit_of_time_ends_a_run(tiny_recipe: MakeRecipe, recorder) -> None:
    outcome = train(tiny_recipe(max_minutes=0.01, validate_every=1000), progress=recorder)
    assert "max_minutes" in outcome.summary["reason"]
    assert outcome.folder.model.exists()


# case T14
def test_twenty_pairs_are_copied_without_a_mistake(tiny_recipe: MakeRecipe, recorder, tmp_path: Path) -> None:
    texts = ["abc", "bca", "cab", "aab", "abb", "bba", "baa", "a", "b", "c", "ab", "ba", "ac", "ca", "bc", "cb", "aa"]
    texts += ["abca", "bcab", "cabc"]
    pairs = tmp_path / "copy.tsv"
    pairs.write_text("".join(f"{text}\t{text}\n" for text in texts), encoding="utf-8")
    files = {"train": {"pairs": str(pairs)}, "valid": {"pairs": str(pairs)}}
    model = {"d_model": 32, "d_ff": 64, "norm_position": "pre", "dropout": 0.0}
    recipe = tiny_recipe(
        data=files, model=model, updates=400, peak_rate=0.01, warmup=20, schedule="constant", metric="exact_match",
        batch_tokens=128, validate_every=50, patience=50, log_every=50, label_smoothing=0.0,
    )  # fmt: skip
    outcome = train(recipe, progress=recorder)
    assert outcome.summary["value"] == 100.0
    import clearhead

    assert clearhead.load(outcome.folder.path, device="cpu").translate(texts, beam_size=1) == texts
