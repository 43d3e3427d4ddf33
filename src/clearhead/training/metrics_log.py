"""`metrics.jsonl`: one JSON object a line, for plots and for `clearhead info`; and TensorBoard, if asked for."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

from clearhead.errors import ConfigError
from clearhead.run_folder import write_text_atomically


class MetricsLog:
    """Appends records, each flushed at once. Opened at a number of lines: what a stopped run wrote later is cut off."""

    def __init__(self, path: Path, *, lines: int = 0, tensorboard: Path | None = None, update: int = 0) -> None:
        written = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        kept = written[:lines]
        write_text_atomically(path, "".join(f"{line}\n" for line in kept))
        self.lines = len(kept)
        self._file = path.open("a", encoding="utf-8", newline="\n")
        self._board = None if tensorboard is None else _open_tensorboard(tensorboard, update)

    def write(self, record: dict[str, Any]) -> None:
        """Append one record; it says its `update` and what kind it is (`event`)."""
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._file.flush()
        self.lines += 1
        if self._board is not None:
            for key, value in record.items():
                if isinstance(value, int | float) and key != "update":
                    self._board.add_scalar(f"{record['event']}/{key}", value, record["update"])

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def _open_tensorboard(directory: Path, update: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError('training.tensorboard = true needs TensorBoard: pip install "clearhead[log]"') from None
    return SummaryWriter(str(directory), purge_step=update + 1)
