"""What a run learns from, and what it is measured on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clearhead.errors import ConfigError, DataError
from clearhead.recipe import DataSection, Recipe
from clearhead.run_folder import RunFolder
from clearhead.text.readers import Pair
from clearhead.training.data import gather_texts, prepare_data, split_pairs


def data_section(**fields: object) -> DataSection:
    return DataSection.model_validate(fields)


def write_pairs(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    return path


def test_the_split_keeps_equal_sources_together_and_loses_nothing(tmp_path: Path) -> None:
    rows = [(f"word {i % 60}", f"sound {i}") for i in range(200)]
    path = write_pairs(tmp_path / "pairs.tsv", rows)
    split = split_pairs(data_section(train={"pairs": str(path)}, valid_pairs=20), 1, print)
    train, valid = list(split.train_pairs()), list(split.valid_pairs())
    assert sorted(pair.line for pair in [*train, *valid]) == list(range(1, 201))
    assert not {pair.source for pair in train} & {pair.source for pair in valid}
    assert 20 <= len(valid) <= 24
    other = split_pairs(data_section(train={"pairs": str(path)}, valid_pairs=20), 2, print)
    assert list(other.valid_pairs()) != valid


def test_by_default_a_twentieth_and_at_most_500_are_held_out(tmp_path: Path) -> None:
    for count, expected in ((40, 2), (1000, 50), (12_000, 500)):
        path = write_pairs(tmp_path / f"{count}.tsv", [(f"s{i}", f"t{i}") for i in range(count)])
        split = split_pairs(data_section(train={"pairs": str(path)}), 1, lambda text: None)
        assert sum(1 for _ in split.valid_pairs()) == expected


# case D11
def test_when_nothing_can_be_held_out_it_says_so(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.tsv", [("a", "b"), ("a", "c")])
    said: list[str] = []
    split = split_pairs(data_section(train={"pairs": str(path)}), 1, said.append)
    assert [pair.target for pair in split.train_pairs()] == [pair.target for pair in split.valid_pairs()] == ["b", "c"]
    assert "too few different sources" in said[0]
    with pytest.raises(ConfigError, match="can't hold out"):  # but who asks for a number gets it, or an error
        split_pairs(data_section(train={"pairs": str(path)}, valid_pairs=1), 1, said.append)


def test_a_source_with_several_targets_is_one_test_with_several_references() -> None:
    pairs = [Pair("lead", "l i: d", 1), Pair("cat", "k a t", 2), Pair("lead", "l e d", 3), Pair("cat", "k a t", 4)]
    texts = gather_texts(pairs, at_most=10)
    assert texts.sources == ["lead", "cat"]
    assert texts.references == [["l i: d", "l e d"], ["k a t"]]


def test_the_texts_are_spread_over_all_pairs() -> None:
    texts = gather_texts((Pair(str(i), "x", i) for i in range(100)), at_most=4)
    assert texts.sources == ["0", "25", "50", "75"]


# case D6
def test_blank_pairs_are_left_out_of_everything(tmp_path: Path, tiny_recipe: Callable[..., Recipe]) -> None:
    rows = [("ab", "ba"), ("", "x"), ("y", ""), (" ", " "), ("cd", "dc"), ("ef", "fe")]
    path = write_pairs(tmp_path / "blanks.tsv", rows)
    recipe = tiny_recipe(data={"train": {"pairs": str(path)}, "valid": {"pairs": str(path)}})
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    said: list[str] = []
    data = prepare_data(recipe, folder, said.append)
    assert len(data.train) == len(data.valid) == 3
    assert data.valid_texts.sources == ["ab", "cd", "ef"]
    assert "1 with empty source (blanks.tsv line 2)" in said[0]
    assert "x" not in data.target_tokenizer.tokens(range(data.target_tokenizer.vocab_size))


# case D2
def test_files_of_different_lengths_are_refused_before_anything_is_written(
    tmp_path: Path, tiny_recipe: Callable[..., Recipe]
) -> None:
    (tmp_path / "a.src").write_text("a\n" * 100)
    (tmp_path / "a.tgt").write_text("a\n" * 99)
    files = {"source": str(tmp_path / "a.src"), "target": str(tmp_path / "a.tgt")}
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    with pytest.raises(DataError, match=r"a\.src has 100 lines but .*a\.tgt has 99"):
        prepare_data(tiny_recipe(data={"train": files}), folder, print)
    assert not list(folder.path.iterdir())


def test_a_symbol_only_in_the_validation_set_is_reported(tmp_path: Path, tiny_recipe: Callable[..., Recipe]) -> None:
    valid = write_pairs(tmp_path / "valid.tsv", [("abX", "ba")])
    recipe = tiny_recipe(data={"valid": {"pairs": str(valid)}})
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    said: list[str] = []
    prepare_data(recipe, folder, said.append)
    assert any("unknown symbols: source 1 of 3" in text for text in said)


def test_each_side_has_its_own_tokenizer_or_both_share_one(tmp_path: Path, tiny_recipe: Callable[..., Recipe]) -> None:
    pairs = write_pairs(tmp_path / "words.tsv", [("cat", "K AE T"), ("at", "AE T"), ("tac", "T AE K")])
    recipe = tiny_recipe(data={"train": {"pairs": str(pairs)}})
    tables = recipe.model_dump(mode="json", exclude_none=True)
    tables["tokenizer"] = {"kind": "char", "target": {"kind": "word"}}
    folder = RunFolder(tmp_path / "own")
    folder.path.mkdir()
    data = prepare_data(Recipe.model_validate(tables), folder, print)
    assert (data.source_tokenizer.kind, data.target_tokenizer.kind) == ("char", "word")
    assert data.target_tokenizer.vocab_size == 4 + 3
    assert folder.tokenizer_paths() == (folder.source_tokenizer, folder.target_tokenizer)

    tables["tokenizer"] = {"kind": "char", "shared": True}
    folder = RunFolder(tmp_path / "shared")
    folder.path.mkdir()
    data = prepare_data(Recipe.model_validate(tables), folder, print)
    assert data.source_tokenizer is data.target_tokenizer
    assert folder.tokenizer_paths() == (folder.shared_tokenizer, folder.shared_tokenizer)
