"""What is said of a head: by its formulas in plain Python, and where one knows the answer."""

from __future__ import annotations

import math

import pytest
import torch

import clearhead
from clearhead.inspection.heads import Head
from clearhead.inspection.statistics import (
    MEASURES,
    HeadStatistics,
    head_statistics,
    measure_rows,
    ranked,
    sentence_statistics,
)
from clearhead.text.batches import collate

PAIRS = [([4, 5, 6, 4, 5], [4, 6, 5]), ([6, 5], [5, 4, 6, 6]), ([4], []), ([5, 4, 6], [6])]


def by_the_formulas(rows, kind):
    """The means over the rows of one or more maps, each `(row, own place, keys allowed, key names)`."""
    sums, count = dict.fromkeys(MEASURES, 0.0), 0
    for weights, place, allowed, names in rows:
        if len(allowed) < 2:
            continue
        count += 1
        w = {key: float(weights[key]) for key in allowed}
        entropy = -sum(p * math.log(p) for p in w.values() if p > 0)
        distance = sum(p * abs(key - place) for key, p in w.items())
        sums["entropy"] += entropy
        sums["relative_entropy"] += entropy / math.log(len(allowed))
        sums["confidence"] += max([p for key, p in w.items() if names[key] != "end"])
        sums["distance"] += distance
        sums["diagonality"] += 1 - distance / max(abs(key - place) for key in allowed)
        for measure, name in (("on_start", "start"), ("on_end", "end"), ("on_padding", "padding")):
            sums[measure] += sum(float(p) for key, p in enumerate(weights) if names[key] == name)
    return {name: total / count for name, total in sums.items()}


def rows_of(kind, weights, source_length, target_length):
    """The rows of one sentence, its end or start token counted in the lengths."""
    queries = source_length if kind == "encoder" else target_length
    keys = target_length if kind == "decoder" else source_length
    names = ["start", *[""] * (keys - 1)] if kind == "decoder" else [*[""] * (keys - 1), "end"]
    names += ["padding"] * (weights.size(1) - keys)
    for query in range(queries):
        place = (
            query * (keys - 1) / (queries - 1) if kind == "cross" and queries > 1 else 0 if kind == "cross" else query
        )
        yield weights[query].tolist(), place, range(query + 1 if kind == "decoder" else keys), names


def assert_equal(found, expected):
    for name in MEASURES:
        assert getattr(found, name) == pytest.approx(expected[name], rel=1e-4, abs=1e-5), name


def test_over_a_data_set(make_translator):
    """Batches with padding give what the sentences give one by one, and that is what the formulas say."""
    model = make_translator("a b c", "x y z").model
    found = head_statistics(model, [collate(PAIRS[:3]), collate(PAIRS[3:])])
    assert [one.head for one in found] == clearhead.inspection.heads.all_heads(model)
    maps = []
    for pair in PAIRS:
        batch = collate([pair])
        with clearhead.record_attention(model) as recorded:
            model(batch.source, batch.decoder_input)
        maps.append(dict(recorded))
    for one in found:
        kind, layer, head = one.head
        path = clearhead.inspection.heads.attention_path(kind, layer)
        rows = [
            row
            for (source, target), recorded in zip(PAIRS, maps, strict=True)
            for row in rows_of(kind, recorded[path][0, head], len(source) + 1, len(target) + 1)
        ]
        assert_equal(one, by_the_formulas(rows, kind))
        assert one.on_padding == 0


def test_of_one_sentence(make_translator):
    inspection = make_translator("a b c", "x y z").inspect("a c b b c", target="x z y")
    for one in inspection.statistics():
        kind, layer, head = one.head
        rows = rows_of(kind, inspection.weights(kind, layer, head), 6, 4)
        assert_equal(one, by_the_formulas(rows, kind))


def test_known_maps():
    """Looking at all alike, at the diagonal, at the end."""
    even, diagonal = torch.full((5, 5), 1 / 5), torch.eye(5)
    to_the_end = torch.zeros(5, 5)
    to_the_end[:, -1] = 1.0
    labels = (["a"] * 5, ["a"] * 5)
    found = sentence_statistics("encoder", torch.stack([even, diagonal, to_the_end])[None], labels)
    assert [one.head for one in found] == [Head("encoder", 0, head) for head in range(3)]
    assert [one.entropy for one in found] == pytest.approx([math.log(5), 0, 0], abs=1e-6)
    assert [one.relative_entropy for one in found] == pytest.approx([1, 0, 0], abs=1e-6)
    assert [one.confidence for one in found] == pytest.approx([0.2, 1 - 0.2, 0])  # the end looks at the end
    assert [one.on_end for one in found] == pytest.approx([0.2, 0.2, 1])
    assert found[1].diagonality == 1
    assert [one.distance for one in found] == pytest.approx([1.6, 0, 2])


def test_the_diagonal_of_cross_attention_is_stretched():
    """Three target tokens over five source tokens: the middle looks at the middle."""
    weights = torch.zeros(1, 1, 3, 5)
    weights[0, 0, [0, 1, 2], [0, 2, 4]] = 1.0
    [one] = sentence_statistics("cross", weights, (["x"] * 3, ["a"] * 5))
    assert (one.distance, one.diagonality) == (0, 1)


def test_attention_on_padding_is_seen():
    """Masks hide padding; a model of another make may not."""
    keys = torch.tensor([[5, 6, 2, 0]])
    rows, chooses = measure_rows(torch.full((1, 1, 3, 4), 0.25), torch.tensor([[5, 6, 2]]), keys, causal=False)
    assert chooses.all()
    assert rows["on_padding"].tolist() == [[[0.25] * 3]]


def test_where_there_is_no_choice_there_is_no_number():
    [one] = sentence_statistics("decoder", torch.ones(1, 1, 1, 1), (["</s>"], ["<s>"]))
    assert all(math.isnan(getattr(one, name)) for name in MEASURES)


def test_ranks():
    def make(head, **values):
        return HeadStatistics(Head("cross", 0, head), **(dict.fromkeys(MEASURES, math.nan) | values))

    heads = [
        make(0, entropy=1.0, on_end=0.9),
        make(1),
        make(2, entropy=0.5, on_end=0.1),
        make(3, entropy=2.0, on_end=1.0),
    ]
    assert [one.head.head for one in ranked(heads, "entropy")] == [2, 0, 3, 1]
    assert [one.head.head for one in ranked(heads, "on_end")] == [3, 0, 2, 1]
