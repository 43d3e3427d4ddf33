"""Several batches at once."""

from __future__ import annotations

from threading import Barrier

import pytest
import torch

from clearhead.decoding.streams import merge_streams, run_in_streams, streams_of

CPU = torch.device("cpu")


@pytest.fixture
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("items", [1, 2, 3, 64, 65, 1000])
def test_work_is_dealt_out_evenly(items: int, two_threads: None) -> None:
    work = list(range(items))
    streams = streams_of(work, CPU)
    assert sorted(one for stream in streams for one in stream) == work
    assert len(streams) == min(2, items)
    assert max(map(len, streams)) - min(map(len, streams)) <= 1
    assert streams_of(work, torch.device("cuda")) == [work]


def test_no_work_gives_no_results(two_threads: None) -> None:
    assert list(merge_streams([iter(stream) for stream in streams_of([], CPU)])) == []


@pytest.mark.parametrize("lengths", [[], [3], [4, 0], [50, 50], [1, 9, 5]])
def test_merged_streams_lose_nothing_and_keep_each_order(lengths: list[int], two_threads: None) -> None:
    streams = [[(stream, n) for n in range(length)] for stream, length in enumerate(lengths)]
    merged = list(merge_streams([iter(stream) for stream in streams]))
    for number, stream in enumerate(streams):
        assert [one for one in merged if one[0] == number] == stream
    assert len(merged) == sum(lengths)
    assert torch.get_num_threads() == 2


def test_streams_run_at_once_on_a_thread_each(two_threads: None) -> None:
    """Each waits for the other: one after the other they would never end."""
    meeting = Barrier(2, timeout=20)

    def stream():
        meeting.wait()
        yield torch.get_num_threads()

    assert list(merge_streams([stream(), stream()])) == [1, 1]


def test_an_error_in_a_stream_is_raised(two_threads: None) -> None:
    def broken():
        yield 1
        raise RuntimeError("broken on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        list(merge_streams([broken(), iter(range(1000))]))
    assert torch.get_num_threads() == 2


def test_closing_stops_the_streams_soon(two_threads: None) -> None:
    """As a person's Ctrl-C does: what is not wanted any more is not worked out to its end."""
    given = []

    def endless():
        while True:
            given.append(1)
            yield 1

    merged = merge_streams([endless(), endless()])
    next(merged)
    merged.close()  # returns only when both threads are done
    count = len(given)
    assert len(given) == count
    assert torch.get_num_threads() == 2


def test_results_come_in_the_order_of_the_work(two_threads: None) -> None:
    assert list(run_in_streams(lambda n: n * n, range(20), CPU)) == [n * n for n in range(20)]
    assert torch.get_num_threads() == 2
