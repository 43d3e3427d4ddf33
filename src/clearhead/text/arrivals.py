"""Lines of a pipe or a terminal as they arrive: what is there is worked on, what isn't is not waited for."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Iterator

from clearhead.errors import DataError

AT_ONCE = 1 << 16
"""Bytes that are read at most: as many as a pipe holds."""


class ArrivingLines(Iterator[bytes]):
    """The lines of an open file with their ends, and whether the next one is there yet."""

    def __init__(self, descriptor: int, name: str = "standard input") -> None:
        self.descriptor, self.name = descriptor, name
        self.arrived: deque[bytes] = deque()
        self.begun: list[bytes] = []
        """The pieces of a line that has no end yet."""
        self.ended = False

    def __next__(self) -> bytes:
        while not self.arrived:
            if not self.read():
                if not self.begun:
                    raise StopIteration
                self.arrived.append(b"".join(self.begun))
                self.begun = []
        return self.arrived.popleft()

    def read(self) -> bool:
        """Read what there is, waiting for something; `False` at the end. Raises `DataError` if it can't be read."""
        if self.ended:
            return False
        try:
            found = os.read(self.descriptor, AT_ONCE)
        except BlockingIOError:  # somebody has told the file not to wait: so we do
            select.select([self.descriptor], [], [])
            return True
        except OSError as error:
            raise DataError(f"{self.name}: can't be read: {error.strerror or error}") from error
        *whole, rest = found.split(b"\n")
        for line in whole:
            self.arrived.append(b"".join([*self.begun, line, b"\n"]))
            self.begun = []
        if rest:
            self.begun.append(rest)
        self.ended = not found
        return not self.ended

    def must_wait(self) -> bool:
        """Whether no whole line is there. A file on disk never keeps anybody waiting."""
        while not self.arrived:
            if os.name != "posix" or not select.select([self.descriptor], [], [], 0)[0]:
                return True
            if not self.read():
                return False  # the end has come: nothing to wait for
        return False
