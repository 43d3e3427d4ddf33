"""`clearhead diff`: made from configurations, so complete; its costs add up; its places are where the code is."""

import itertools
import re
from dataclasses import fields
from pathlib import Path

import pytest

import clearhead
from clearhead.cli.diff import as_markdown, as_text
from clearhead.config import CHOICES, ModelConfig
from clearhead.errors import ConfigError
from clearhead.models.differences import ORDER, ORIGINS, VARIANTS, config_of, differences
from clearhead.models.making import count_parameters

PAIRS = [
    *(("transformer", name) for name in VARIANTS if name != "transformer"),
    *itertools.permutations(["gpt2", "bert", "llama"], 2),
    ("llama3", "bert"), ("bert", "transformer"), ("llama2", "marian"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_every_difference_is_there_and_the_costs_add_up(before, after):
    one, other = config_of(before), config_of(after)
    found = differences(one, other)
    differing = {field.name for field in fields(ModelConfig) if getattr(one, field.name) != getattr(other, field.name)}
    assert {difference.field for difference in found} == differing - {"encoder_layers", "decoder_layers"}
    assert sum(difference.parameters for difference in found) == count_parameters(other) - count_parameters(one)
    text = as_text(before, after, found, (count_parameters(one), count_parameters(other)))
    assert max(map(len, text.split("\n"))) <= 80


def test_costs_are_those_of_the_papers():
    """By hand, at the paper's base size: d_model 512, d_ff 2048, 6 layers, 37,000 tokens."""
    cost = {one.field: one.parameters for one in differences(config_of("transformer"), config_of("gpt2"))}
    attention, feed_forward, norm = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512, 2 * 512
    encoder, cross_attention = 6 * (attention + feed_forward + 2 * norm), 6 * (attention + norm)
    assert cost["architecture"] == -encoder - cross_attention
    assert cost["positions"] == 1024 * 512
    assert cost["norm_position"] == norm
    cost = {one.field: one.parameters for one in differences(config_of("gpt2"), config_of("llama"))}
    assert cost["feed_forward"] == 6 * (512 * 2048 + 2048)
    assert cost["tied"] == 37_000 * 512
    assert cost["norm"] == -13 * 512
    assert cost["biases"] == -6 * (4 * 512 + 2 * 2048 + 512)


def test_every_option_has_an_origin_in_the_code():
    package = Path(clearhead.__file__).parent
    for (name, _), (_, path) in ORIGINS.items():
        assert name in ORDER
        assert path.partition(":")[2]
    for name, kinds in CHOICES.items():
        for kind in kinds.__args__:
            assert (name, kind) in ORIGINS or (name, None) in ORIGINS, (name, kind)
    for before, after in PAIRS[:8]:
        for one in differences(config_of(before), config_of(after)):
            file, line = one.place.split(":")
            assert (
                (package / file)
                .read_text("utf-8")
                .split("\n")[int(line) - 1]
                .startswith(("class", "def", "@", "    def"))
            )


def test_markdown_has_a_row_for_each():
    found = differences(config_of("transformer"), config_of("bert"))
    rows = as_markdown("transformer", "bert", found, (1, 2)).split("\n")
    assert [row.count("|") for row in rows[: 2 + len(found)]] == [7] * (2 + len(found))


def test_an_unknown_variant_is_named():
    with pytest.raises(ConfigError, match="no variant 'gpt5'; there are transformer, gpt2"):
        config_of("gpt5")
    with pytest.raises(ConfigError, match="different sizes"):
        differences(config_of("transformer"), ModelConfig(source_vocab=5, target_vocab=5, tied="all"))


def test_the_page_about_variants_is_made_by_the_command():
    page = (Path(__file__).parents[2] / "docs" / "variants.md").read_text("utf-8")
    for before, after in [("transformer", name) for name in VARIANTS if name != "transformer"] + [("gpt2", "llama")]:
        one, other = config_of(before), config_of(after)
        table = as_markdown(before, after, differences(one, other), (count_parameters(one), count_parameters(other)))
        table = re.sub(r":\d+`", "`", table)  # lines move more often than files
        assert table in page, f"docs/variants.md is out of date: clearhead diff {after} {before} --markdown"
