"""Several streams of work at once on the cores of a CPU.

Decoding is many small operators in a row, which two threads can hardly share. So each core decodes sentences of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event
from typing import TypeVar

import torch

Work = TypeVar("Work")
Result = TypeVar("Result")


def streams_of(work: Sequence[Work], device: torch.device) -> list[Sequence[Work]]:
    """The work dealt out, one piece to each stream in turn: as many streams as torch has threads, on a GPU one."""
    streams = min(torch.get_num_threads(), len(work)) if device.type == "cpu" else 1
    return [work[first::streams] for first in range(streams)]


def run_in_streams(function: Callable[[Work], Result], work: Sequence[Work], device: torch.device) -> Iterator[Result]:
    """`map(function, work)`, with as many pieces of work at once as torch has threads, each on one.

    One piece alone gets all threads. A GPU runs one piece after the other.
    """
    threads = min(torch.get_num_threads(), len(work)) if device.type == "cpu" else 1
    if threads < 2:
        yield from map(function, work)
        return
    with one_thread_each(threads) as pool:
        yield from pool.map(function, work)


def merge_streams(streams: Sequence[Iterator[Result]]) -> Iterator[Result]:
    """What several iterators give, as it comes, each of them running on a thread of its own.

    One alone gets all threads. When the merged iterator is closed, each stops behind what it is giving just then.
    """
    if len(streams) < 2:
        yield from (result for stream in streams for result in stream)
        return
    results: SimpleQueue[Result | None] = SimpleQueue()
    closed = Event()

    def run(stream: Iterator[Result]) -> None:
        try:
            for result in stream:
                results.put(result)
                if closed.is_set():
                    return
        finally:
            results.put(None)

    with one_thread_each(len(streams)) as pool:
        runs = [pool.submit(run, stream) for stream in streams]
        try:
            for _ in streams:
                while (result := results.get()) is not None:
                    yield result
        finally:
            closed.set()
        for run_ in runs:
            run_.result()  # raises what it raised


@contextmanager
def one_thread_each(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Workers on which torch's operators take one thread; no work is begun once the block is left."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
