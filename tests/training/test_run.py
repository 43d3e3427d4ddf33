"""From recipe to run folder: what is refused, what is kept, and the smallest data that work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import clearhead
from clearhead.cli.info import describe_run
from clearhead.errors import ConfigError, DataError, RunError
from clearhead.models.transformer import Transformer, load_weights
from clearhead.recipe import Recipe, make_recipe
from clearhead.run_folder import RunFolder, write_atomically
from clearhead.training.run import train

MakeRecipe = Callable[..., Recipe]


def test_a_folder_that_holds_a_run_is_not_trained_over(tiny_recipe: MakeRecipe, recorder) -> None:
    outcome = train(tiny_recipe(updates=2), progress=recorder)
    before = outcome.folder.model.read_bytes()
    with pytest.raises(RunError, match=r"already holds a run.*--resume.*--overwrite.*--set run.dir"):
        train(tiny_recipe(updates=3), progress=recorder)
    assert outcome.folder.model.read_bytes() == before


def test_overwriting_deletes_the_run_and_nothing_else(tiny_recipe: MakeRecipe, recorder) -> None:
    folder = train(tiny_recipe(updates=5), progress=recorder).folder
    (folder.path / "notes.txt").write_text("mine")
    outcome = train(tiny_recipe(updates=2, model={"d_model": 8}), overwrite=True, progress=recorder)
    assert outcome.summary["update"] == 2
    assert folder.read_config().d_model == 8
    assert (folder.path / "notes.txt").read_text() == "mine"
    assert [path.name for path in folder.checkpoints.glob("checkpoint-*")] == ["checkpoint-0000002.safetensors"]
    assert len(folder.read_metrics()) == 3  # two updates and a validation


def test_a_training_that_never_got_anywhere_is_in_nobodys_way(tiny_recipe: MakeRecipe, recorder) -> None:
    """A mistake in the recipe is corrected and the same command tried again."""
    with pytest.raises(DataError):
        train(tiny_recipe(data={"max_length": 2}), progress=recorder)
    assert train(tiny_recipe(updates=1), progress=recorder).summary["update"] == 1


def test_two_processes_do_not_train_in_one_folder(tiny_recipe: MakeRecipe, recorder) -> None:
    folder = train(tiny_recipe(updates=2), progress=recorder).folder
    with folder.locked(), pytest.raises(RunError, match="another process is training here"):
        train(tiny_recipe(updates=4), resume=True, progress=recorder)
    assert train(tiny_recipe(updates=4), resume=True, progress=recorder).summary["update"] == 4


# case T1
def test_resuming_a_finished_run_says_so_and_changes_nothing(tiny_recipe: MakeRecipe, recorder) -> None:
    folder = train(tiny_recipe(updates=5), progress=recorder).folder
    before = {path: path.read_bytes() for path in folder.path.rglob("*.safetensors")}
    outcome = train(tiny_recipe(updates=5), resume=True, progress=recorder)
    assert "this run has ended: all 5 updates are done. To go on" in recorder.messages[-1]
    assert outcome.summary["update"] == 5
    assert {path: path.read_bytes() for path in folder.path.rglob("*.safetensors")} == before


def test_resuming_nothing_begins_at_the_beginning(tiny_recipe: MakeRecipe, recorder) -> None:
    outcome = train(tiny_recipe(updates=2), resume=True, progress=recorder)
    assert outcome.summary["update"] == 2
    assert "nothing was saved yet, so the run begins at its beginning" in recorder.messages


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"model": {"d_ff": 24}}, "model.d_ff is 24, but"),
        ({"data": {"max_length": 30}}, "data.max_length is 30, but"),
        ({"optimizer": "adamw"}, "training.optimizer is 'adamw', but"),
    ],
)
def test_what_a_run_is_made_of_cannot_change(
    tiny_recipe: MakeRecipe, recorder, changes: dict[str, object], key: str
) -> None:
    train(tiny_recipe(updates=2), progress=recorder)
    with pytest.raises(RunError, match=key):
        train(tiny_recipe(updates=4, **changes), resume=True, progress=recorder)


def test_a_file_in_the_way_and_a_missing_corpus(tiny_recipe: MakeRecipe, recorder, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file: File exists"):
        train(tiny_recipe("file"), progress=recorder)
    with pytest.raises(ConfigError, match=r"absent.tsv: no such file in .*data.root"):
        train(tiny_recipe("other", data={"train": {"pairs": "absent.tsv"}}), progress=recorder)


# case D11
@pytest.mark.parametrize("count", [1, 3, 10, 100])
def test_the_smallest_data_train_with_default_settings(tmp_path: Path, recorder, count: int) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"คำ {i}\tword {i}\n" for i in range(count)), encoding="utf-8")
    recipe = make_recipe(
        {
            "run": {"dir": str(tmp_path / "run")},
            "data": {"train": {"pairs": str(pairs)}},
            "training": {"updates": 2, "device": "cpu"},
            "decoding": {"max_length_extra": 5, "max_length_ratio": 1},
        }
    )
    outcome = train(recipe, progress=recorder)
    assert outcome.summary["update"] == 2
    said = "\n".join(recorder.messages)
    if count == 1:
        assert "validating on the training pairs" in said
    else:
        held_out = max(1, round(count * 0.05))
        assert f"train pairs: kept all {count - held_out} pairs" in said
        assert f"valid pairs: kept all {held_out} pairs" in said


# case S4
def test_overlong_validation_lines_are_reported_before_training(
    tiny_recipe: MakeRecipe, recorder, tmp_path: Path
) -> None:
    """The limit counts the end token: of max_length 32, 31 characters fit and 32 do not."""
    valid = tmp_path / "valid.tsv"
    valid.write_text(f"ab\t{'a' * 31}\nab\t{'b' * 32}\n{'a' * 5000}\tb\n", encoding="utf-8")
    train(tiny_recipe(data={"valid": {"pairs": str(valid)}}, updates=4), progress=recorder)
    (report,) = [message for message in recorder.messages if message.startswith("valid pairs: kept")]
    assert "kept 1 of 3 pairs" in report
    assert "2 longer than 32 tokens (valid.tsv lines 2, 3)" in report
    order = recorder.messages.index(report)
    assert order < next(i for i, message in enumerate(recorder.messages) if message.startswith("model:"))


# case S4
def test_the_training_pairs_limit_is_the_same(tiny_recipe: MakeRecipe, recorder, tmp_path: Path) -> None:
    pairs = tmp_path / "long.tsv"
    pairs.write_text("ab\tba\n" * 5 + f"cd\t{'a' * 31}\nef\t{'b' * 32}\n", encoding="utf-8")
    train(
        tiny_recipe(data={"train": {"pairs": str(pairs)}, "valid": {"pairs": str(pairs)}}, updates=1), progress=recorder
    )
    assert "train pairs: kept 6 of 7 pairs; 1 longer than 32 tokens (long.tsv line 7)" in recorder.messages


# case E4
@pytest.mark.parametrize("tied", ["output", "all"])
def test_a_tied_model_is_still_tied_after_resuming(tiny_recipe: MakeRecipe, recorder, tied: str) -> None:
    def recipe(updates: int) -> Recipe:
        made = tiny_recipe(updates=updates, model={"tied": tied} if tied == "output" else {})
        if tied == "output":
            return made
        tables = made.model_dump(mode="json", exclude_none=True)
        tables["tokenizer"]["shared"] = True
        tables["model"]["tied"] = "all"
        return make_recipe(tables)

    train(recipe(3), progress=recorder)
    folder = train(recipe(6), resume=True, progress=recorder).folder
    names = set(load_file(folder.model))
    assert "projection.weight" not in names
    assert ("source_embedding.weight" in names and "target_embedding.weight" in names) == (tied == "output")
    model = Transformer(folder.read_config())
    load_weights(model, folder.model)
    assert model.projection.weight is model.target_embedding.weight
    loaded = clearhead.load(folder.path, device="cpu").model  # whose projection is laid out for decoding
    assert torch.equal(loaded.projection.weight, model.projection.weight)


def test_the_folder_can_be_moved_and_gone_on_with(tiny_recipe: MakeRecipe, recorder, tmp_path: Path) -> None:
    folder = train(tiny_recipe(updates=3), progress=recorder).folder
    moved = folder.path.rename(tmp_path / "elsewhere")
    recipe = RunFolder(moved).read_recipe()
    assert recipe.run.dir == moved
    raised = recipe.model_copy(update={"training": recipe.training.model_copy(update={"updates": 5})})
    assert train(raised, resume=True, progress=recorder).summary["update"] == 5


def test_no_pickle_is_in_the_folder(tiny_recipe: MakeRecipe, recorder) -> None:
    folder = train(tiny_recipe(updates=5), progress=recorder).folder
    for path in folder.path.rglob("*"):
        if path.is_file():
            assert path.suffix in {".toml", ".json", ".jsonl", ".safetensors", ".ids", ".offsets"}
            assert not path.read_bytes().startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"PK"))


def test_info_describes_a_finished_and_an_unfinished_run(tiny_recipe: MakeRecipe, recorder) -> None:
    folder = train(tiny_recipe(updates=5), progress=recorder).folder
    found = describe_run(folder)
    assert (
        found["parameters"]["total"]
        == found["training"]["parameters"]
        == sum(tensor.numel() for tensor in load_file(folder.model).values())
    )
    assert set(found["parameters"]) == {"source_embedding", "target_embedding", "encoder", "decoder", "total"}
    assert found["vocabulary"] == {
        "source": {"kind": "char", "tokens": 12}, "target": {"kind": "char", "tokens": 12}, "shared": False
    }  # fmt: skip
    assert found["training"]["update"] == 5
    json.dumps(found)

    folder.summary.unlink()
    unfinished = describe_run(folder)["training"]
    assert unfinished["reason"] == "not finished"
    assert unfinished["update"] == 5
    assert unfinished["last_validation"]["update"] == 5


def test_info_on_no_run_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such run folder"):
        RunFolder(tmp_path / "absent").require()
    with pytest.raises(RunError, match=r"no recipe\.toml"):
        RunFolder(tmp_path).require()


# case T11
def test_writing_atomically_keeps_the_old_file_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
