"""Ctrl-C and SIGTERM: the current update is finished and saved first; a second signal ends at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopRequested(Exception):
    """The run was asked to stop; raised between two steps, where its state is whole."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


class StopSignals:
    """While entered, SIGINT and SIGTERM only set a mark, which `check` turns into `StopRequested`.

    The first one also puts the former handlers back, so that a second one has its usual effect at once.
    Outside the main thread Python delivers no signals, and this does nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._former: dict[signal.Signals, Any] = {}

    def check(self) -> None:
        """Raise `StopRequested` if a signal has come."""
        if self.received is not None:
            raise StopRequested(self.received)

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._former[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former = {}
