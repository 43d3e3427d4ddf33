"""Several batches at once on the cores of a CPU.

Decoding is many small operators in a row, which two threads can hardly share. So each core decodes batches of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Work = TypeVar("Work")
Result = TypeVar("Result")


def even_size(items: int, largest: int, device: torch.device) -> int:
    """The size of batches, at most `largest`, that gives every stream of `run_in_streams` about as much to do."""
    streams = torch.get_num_threads() if device.type == "cpu" else 1
    turns = math.ceil(items / (largest * streams))
    return max(1, math.ceil(items / max(1, turns * streams)))


def run_in_streams(function: Callable[[Work], Result], work: Sequence[Work], device: torch.device) -> Iterator[Result]:
    """`map(function, work)`, with as many pieces of work at once as torch has threads, each on one.

    One piece alone gets all threads. A GPU runs one piece after the other.
    """
    threads = torch.get_num_threads()
    streams = min(threads, len(work)) if device.type == "cpu" else 1
    if streams < 2:
        yield from map(function, work)
        return
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(streams, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from pool.map(function, work)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
