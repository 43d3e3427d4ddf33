"""Several batches at once."""

from __future__ import annotations

import pytest
import torch

from clearhead.decoding.streams import even_size, run_in_streams

CPU = torch.device("cpu")


@pytest.fixture
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("items", [1, 2, 3, 63, 64, 65, 127, 128, 129, 1000])
def test_both_streams_have_as_many_batches(items: int, two_threads: None) -> None:
    size = even_size(items, 64, CPU)
    batches = -(-items // size)
    assert 1 <= size <= 64
    assert batches % 2 == 0 or items == 1
    assert batches <= -(-items // 64) + 1  # no more than it takes
    assert even_size(items, 64, torch.device("cuda")) == -(-items // -(-items // 64))


def test_results_come_in_the_order_of_the_work(two_threads: None) -> None:
    assert list(run_in_streams(lambda n: n * n, range(20), CPU)) == [n * n for n in range(20)]
    assert torch.get_num_threads() == 2
