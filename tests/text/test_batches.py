"""Batches: their tensors, their budget, and plans that are the same whenever they are made."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearhead.errors import ConfigError
from clearhead.text.batches import BatchPlan, batches, collate, make_batch, plan_batches
from clearhead.text.corpus import Corpus
from clearhead.text.readers import CorpusFiles
from clearhead.text.tokenizers import BOS, EOS, PAD, train_tokenizer

CHARACTERS = train_tokenizer("char", ["ab"])
A, B = CHARACTERS.encode("ab")


def corpus_of(folder: Path, *parts: list[tuple[int, int]], weights: tuple[float, ...] = ()) -> Corpus:
    """A corpus of pairs with these lengths, EOS included."""
    files = []
    for number, lengths in enumerate(parts):
        path = folder / f"part{number}.tsv"
        path.write_text("".join("a" * (s - 1) + "\t" + "b" * (t - 1) + "\n" for s, t in lengths))
        files.append(CorpusFiles(pairs=path, weight=weights[number] if weights else 1.0))
    return Corpus.build(folder / "cache", files, CHARACTERS, CHARACTERS, max_length=5_000)


def random_lengths(count: int, longest: int = 40, seed: int = 1) -> list[tuple[int, int]]:
    generator = np.random.default_rng(seed)
    source = generator.integers(2, longest, count)
    target = np.clip(source + generator.integers(-5, 6, count), 2, longest)
    return list(zip(source.tolist(), target.tolist(), strict=True))


def as_lists(plan: BatchPlan) -> list[list[int]]:
    return [batch.tolist() for batch in plan]


def padded_size(corpus: Corpus, batch: np.ndarray) -> int:
    return len(batch) * int(max(corpus.source_lengths[batch].max(), corpus.target_lengths[batch].max()))


def test_the_tensors_of_a_batch() -> None:
    # the text side of case T14: shifted once, PAD ignored
    batch = collate([([A, B, A], [B, B]), ([A], [B, A, B])])
    assert batch.source.tolist() == [[A, B, A, EOS], [A, EOS, PAD, PAD]]
    assert batch.decoder_input.tolist() == [[BOS, B, B, PAD], [BOS, B, A, B]]
    assert batch.labels.tolist() == [[B, B, EOS, PAD], [B, A, B, EOS]]
    assert batch.rows.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert batch.target_tokens == 7
    assert batch.indices.tolist() == [0, 1]
    assert {tensor.dtype for tensor in (batch.source, batch.decoder_input, batch.labels, batch.rows)} == {torch.int64}
    assert batch.to("cpu").labels.equal(batch.labels)


def test_empty_texts_can_be_collated() -> None:
    batch = collate([([], [])])
    assert (batch.source.tolist(), batch.decoder_input.tolist(), batch.labels.tolist()) == (
        [[EOS]],
        [[BOS]],
        [[EOS]],
    )


def test_a_batch_of_a_corpus_is_the_collation_of_its_pairs(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, random_lengths(50))
    indices = np.array([7, 3, 3, 49, 0])
    batch = make_batch(corpus, indices)
    pairs = [corpus.pair(index) for index in indices]
    expected = collate([(source.tolist(), target.tolist()) for source, target in pairs])
    for name in ("source", "decoder_input", "labels", "rows"):
        assert getattr(batch, name).equal(getattr(expected, name))
    assert batch.indices.tolist() == indices.tolist()
    assert batch.target_tokens == expected.target_tokens == int(corpus.target_lengths[indices].sum())


@given(
    lengths=st.lists(st.tuples(st.integers(2, 30), st.integers(2, 30)), min_size=1, max_size=60),
    spare=st.integers(0, 200),
    seed=st.integers(0, 2**32),
    epoch=st.integers(0, 1000),
    shuffle=st.booleans(),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_pair_once_and_within_the_budget(
    lengths: list[tuple[int, int]], spare: int, seed: int, epoch: int, shuffle: bool, tmp_path: Path
) -> None:
    # case T2, T10
    corpus = corpus_of(tmp_path, lengths)
    budget = max(map(max, lengths)) + spare
    plan = plan_batches(corpus, batch_tokens=budget, seed=seed, epoch=epoch, shuffle=shuffle)
    assert sorted(pair for batch in plan for pair in batch.tolist()) == list(range(len(lengths)))
    assert max(padded_size(corpus, batch) for batch in plan) <= budget
    assert min(len(batch) for batch in plan) > 0
    again = plan_batches(corpus, batch_tokens=budget, seed=seed, epoch=epoch, shuffle=shuffle)
    assert as_lists(again) == as_lists(plan)
    assert again.largest == plan.largest


def test_one_long_pair_among_short_ones(tmp_path: Path) -> None:
    # case T10
    corpus = corpus_of(tmp_path, [*random_lengths(3_000, longest=25), (2_000, 1_900)])
    plan = plan_batches(corpus, batch_tokens=4_096, seed=1, epoch=0)
    assert max(padded_size(corpus, batch) for batch in plan) <= 4_096
    sizes = [
        len(batch) * int(corpus.source_lengths[batch].max() + corpus.target_lengths[batch].max()) for batch in plan
    ]
    assert sizes[plan.largest] == max(sizes)  # to be tried first
    with pytest.raises(ConfigError, match=r"batch_tokens=1999 is less than the longest text has, 2000"):
        plan_batches(corpus, batch_tokens=1_999, seed=1, epoch=0)


def test_a_resumed_epoch_goes_on_where_it_stopped(tmp_path: Path) -> None:
    # case T2: in the middle, and exactly at the end
    corpus = corpus_of(tmp_path, random_lengths(500))
    plan = plan_batches(corpus, batch_tokens=300, seed=3, epoch=5)
    whole = [batch.indices.tolist() for batch in batches(corpus, plan)]
    reopened = Corpus.open(corpus.directory)
    for stop in (0, 1, len(plan) // 2, len(plan)):
        same_plan = plan_batches(reopened, batch_tokens=300, seed=3, epoch=5)
        rest = [batch.indices.tolist() for batch in batches(reopened, same_plan, start=stop)]
        assert whole[:stop] + rest == whole


def test_epochs_and_seeds_differ_in_order_and_company(tmp_path: Path) -> None:
    distinct = [(length, length) for length in range(2, 302)]  # no two pairs of the same length
    corpus = corpus_of(tmp_path, distinct)
    plans = [
        plan_batches(corpus, batch_tokens=2_000, seed=seed, epoch=epoch) for seed, epoch in [(1, 0), (1, 1), (2, 0)]
    ]
    companies = [{frozenset(batch) for batch in as_lists(plan)} for plan in plans]
    for first, second in [(0, 1), (0, 2)]:
        assert len(companies[first] & companies[second]) < len(companies[first]) / 2
        assert [batch[0] for batch in as_lists(plans[first])] != [batch[0] for batch in as_lists(plans[second])]
    lengths = [int(corpus.source_lengths[batch].max()) for batch in plans[0]]
    assert lengths != sorted(lengths)


def test_unshuffled_batches_go_from_short_to_long(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, random_lengths(200), weights=(0.5,))
    plan = plan_batches(corpus, batch_tokens=200, seed=1, epoch=0, shuffle=False)
    longest = [max(corpus.source_lengths[batch].max(), corpus.target_lengths[batch].max()) for batch in plan]
    assert longest == sorted(longest)
    assert sum(len(batch) for batch in plan) == 200


def test_weights_decide_how_often_a_pair_comes(tmp_path: Path) -> None:
    parts = [random_lengths(400, seed=seed) for seed in range(4)]
    corpus = corpus_of(tmp_path, *parts, weights=(1, 2.25, 0.1, 0.0001))
    halves = []
    for epoch in range(2):
        plan = plan_batches(corpus, batch_tokens=400, seed=1, epoch=epoch)
        drawn = np.concatenate(list(plan))
        counts = np.bincount(drawn, minlength=len(corpus))
        assert [int(counts[part.start : part.stop].sum()) for part in corpus.parts] == [400, 900, 40, 1]
        assert counts[:400].tolist() == [1] * 400
        assert set(counts[400:800]) == {2, 3}
        halves.append(np.flatnonzero(counts[800:1200]).tolist())
    assert halves[0] != halves[1]  # another tenth in every epoch


def test_there_is_little_padding(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, random_lengths(20_000))
    plan = plan_batches(corpus, batch_tokens=4_096, seed=1, epoch=0)
    for lengths in (corpus.source_lengths, corpus.target_lengths):
        padded = sum(len(batch) * int(lengths[batch].max()) for batch in plan)
        assert 1 - lengths.sum() / padded < 0.10


@pytest.mark.parametrize("count", [1, 3, 10, 100])
def test_a_few_pairs_make_batches(count: int, tmp_path: Path) -> None:
    # case D11
    corpus = corpus_of(tmp_path, random_lengths(count))
    plan = plan_batches(corpus, batch_tokens=4_096, seed=1, epoch=0)
    assert sum(batch.target_tokens for batch in batches(corpus, plan)) == corpus.target_lengths.sum()
    with pytest.raises(IndexError):
        plan[len(plan)]
