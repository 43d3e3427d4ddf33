"""Recipes: read, checked, changed from the command line, and written so that they read back equal."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearhead.errors import ConfigError
from clearhead.recipe import DEFAULT_UPDATES, TrainingSection, make_recipe, read_recipe
from clearhead.toml import apply_override, to_toml

LEAST: dict[str, Any] = {"data": {"train": {"pairs": "pairs.tsv"}}}


def with_tables(**sections: Any) -> dict[str, Any]:
    return {**LEAST, **sections}


def test_the_least_recipe_has_defaults_for_all_else() -> None:
    recipe = make_recipe(LEAST)
    assert [corpus.pairs for corpus in recipe.data.train] == [Path("pairs.tsv")]
    assert recipe.training.betas == (0.9, 0.98)  # the paper's section 5.3
    assert recipe.training.epsilon == 1e-9
    assert recipe.tokenizer.side("source") == ("bpe", 8000, " ")
    assert recipe.model_shape(source_vocab=100, target_vocab=90).d_model == 128


def test_the_resolved_recipe_reads_back_equal() -> None:
    recipe = make_recipe(
        {
            "run": {"dir": 'runs/a "b" \\ ä\U0001f600\x7f', "seed": 7},
            "data": {
                "train": [{"source": "a", "target": "b", "weight": 0.5}, {"pairs": "c.csv", "source_column": 2}],
                "valid": {"pairs": "v.tmx", "source_column": "en", "target_column": "de"},
            },
            "tokenizer": {"kind": "char", "target": {"kind": "word", "separator": "\t"}},
            "model": {"preset": "base", "dropout": 0.3, "norm_position": "pre"},
            "training": {"peak_rate": 1e-12, "patience": 3, "tensorboard": True},
        }
    )
    assert make_recipe(tomllib.loads(recipe.to_toml())) == recipe


keys = st.text("abcxyz_", min_size=1, max_size=6)
json_values = st.recursive(
    st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a busy machine
@given(st.dictionaries(keys, json_values, max_size=4))
def test_any_tables_written_as_toml_read_back_equal(tables: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(tables)) == tables


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (with_tables(training={"batch_token": 1}), "unknown key training.batch_token; did you mean batch_tokens?"),
        (with_tables(tokenizr={}), "unknown key tokenizr; did you mean tokenizer?"),
        (with_tables(run={"qqq": 1}), "unknown key run.qqq; known here: dir, seed"),
        ({"data": {"train": [{"pairs": "a", "sorce": "b"}]}}, "unknown key data.train.0.sorce; did you mean source?"),
        (with_tables(tokenizer={"source": {"kindd": 1}}), "unknown key tokenizer.source.kindd; did you mean kind?"),
        ({}, "data is missing"),
        ({"data": {}}, "data.train is missing"),
        ({"data": {"train": []}}, "data.train: Value should have at least 1 item"),
        ({"data": {"train": {"source": "a"}}}, "data.train.0: source and target belong together"),
        ({"data": {"train": {"weight": 2}}}, "data.train.0: give either source and target"),
        (with_tables(training={"updates": "many"}), "training.updates: Input should be a valid integer"),
        (
            with_tables(training={"updates": 0}),
            "training.updates: Input should be greater than or equal to 1 (found 0)",
        ),
        (with_tables(training={"metric": "blue"}), "training.metric: Input should be 'loss', 'bleu'"),
        (
            with_tables(training={"schedule": "cosine", "max_minutes": 3}),
            'schedule = "cosine" has to know where it ends',
        ),
        (
            with_tables(training={"batch_tokens": 100}),
            "training.batch_tokens = 100 can't hold a pair of data.max_length",
        ),
        (with_tables(training={"peak_rate": float("inf")}), "training.peak_rate: Input should be a finite number"),
        (with_tables(model={"n_heads": 3}), "[model]: d_model = 128 can't be split into n_heads = 3"),
        (with_tables(model={"d_modell": 3}), "[model]: a model has no option 'd_modell'; did you mean d_model?"),
        (with_tables(model={"preset": "huge"}), "model.preset = 'huge': choose one of tiny, small, base, big"),
        (with_tables(model={"source_vocab": 9}), "model.source_vocab follows from the tokenizer"),
        (with_tables(model={"tied": "all"}), "set tokenizer.shared = true"),
        (with_tables(tokenizer={"shared": True, "target": {"kind": "char"}}), "[tokenizer.target] differ"),
        (
            {"data": {**LEAST["data"], "valid_split": 0.1, "valid_pairs": 3}},
            "valid_split and valid_pairs are both given",
        ),
    ],
)
def test_what_is_wrong_is_named(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_recipe(tables, origin="r.toml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("r.toml: ")


def test_every_mistake_has_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        make_recipe(with_tables(training={"updates": 0, "wramup": 1}, run={"seed": -1}))
    assert len(str(caught.value).split("\n")) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"[data", "not TOML"), (b"\xff\xfe[\x00", "not UTF-8 (byte 0)"), (b"", "data is missing")],
)
def test_files_that_are_no_recipes(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"r\.toml") as caught:
        read_recipe(path)
    assert message in str(caught.value)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such recipe"):
        read_recipe(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="can't be read"):
        read_recipe(tmp_path)


def test_the_run_folder_is_named_after_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "g2p.toml"
    path.write_bytes(b"\xef\xbb\xbf" + to_toml(LEAST).encode())  # with the mark that Windows editors put there
    assert read_recipe(path).run.dir == Path("runs/g2p")
    assert read_recipe(path, ["run.dir=elsewhere"]).run.dir == Path("elsewhere")


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("a.b=100", "b", 100),
        ("a.b = 1e-3", "b", 1e-3),
        ("a.b=true", "b", True),
        ('a.b="true"', "b", "true"),
        ("a.b=some text", "b", " some text".strip()),
        ("a.b=[0.9, 0.98]", "b", [0.9, 0.98]),
        ('a.b={pairs = "x.tsv"}', "b", {"pairs": "x.tsv"}),
        ("a.b=2024-01-01", "b", "2024-01-01"),
        ("a.b=x=y", "b", "x=y"),
        ("a.b=1\nc = 2", "b", "1\nc = 2"),
        ("a.b=", "b", ""),
    ],
)
def test_overrides(override: str, key: str, value: object) -> None:
    tables: dict[str, Any] = {"a": {"b": 0, "c": 5}}
    apply_override(tables, override)
    assert tables == {"a": {key: value, "c": 5}}


def test_an_override_can_take_a_key_away_and_make_a_section() -> None:
    tables: dict[str, Any] = {"training": {"patience": 3}}
    apply_override(tables, "training.patience=none")
    apply_override(tables, "tokenizer.source.kind=char")
    assert tables == {"training": {}, "tokenizer": {"source": {"kind": "char"}}}


@pytest.mark.parametrize("override", ["training.updates", "updates=3", ".x=1", "a..b=1", "=", "data.train.source=x"])
def test_overrides_that_name_no_key(override: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        apply_override({"data": {"train": [1]}}, override)


def test_limits_of_a_run() -> None:
    def total(**options: Any) -> int | None:
        return TrainingSection.model_validate(options).total_updates(batches_per_epoch=10)

    assert total() == DEFAULT_UPDATES
    assert total(updates=7) == 7
    assert total(epochs=3) == 30
    assert total(epochs=0.25, accumulate=2) == 1
    assert total(epochs=3, accumulate=4, updates=5) == 5
    assert total(max_minutes=2) is None
    assert total(max_minutes=2, epochs=1) == 10


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "recipes").glob("*.toml")), ids=lambda path: path.stem
)
def test_the_recipes_that_come_along_are_whole(path: Path) -> None:
    recipe = read_recipe(path)
    assert f"clearhead train recipes/{path.name}" in path.read_text(encoding="utf-8")
    assert make_recipe(tomllib.loads(recipe.to_toml())) == recipe
