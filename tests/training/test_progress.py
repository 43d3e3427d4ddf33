"""What is shown, on a terminal and elsewhere; and the log."""

from __future__ import annotations

import io
import json
import math
import os
import signal
from pathlib import Path

import pytest
from rich.console import Console

from clearhead.training.metrics_log import MetricsLog
from clearhead.training.progress import PlainProgress, TerminalProgress, UpdateLine, format_seconds, validation_lines
from clearhead.training.stopping import StopRequested, StopSignals
from clearhead.training.validation import Sample, Validation

LINE = UpdateLine(
    update=1500, total_updates=20_000, epoch=3, loss=2.34567, plain=1.9, learning_rate=7.5e-4, gradient_norm=0.8,
    tokens_per_second=12_345.6, seconds=150.0, max_seconds=None, skipped=2,
)  # fmt: skip
SAMPLES = [Sample("ein [bold]Hund", "a \x1b[31mdog\n", "a dog")]
FOUND = Validation(loss=2.0, metric="bleu", value=31.256, samples=SAMPLES, seconds=1.25)


def test_plain_lines() -> None:
    written = io.StringIO()
    progress = PlainProgress(Console(file=written, width=40))
    progress.message("a long message " * 10)
    progress.update(LINE, is_due=False)
    progress.update(LINE, is_due=True)
    progress.validation(FOUND, update=1500, is_best=True)
    progress.close()
    assert written.getvalue().split("\n") == [
        "a long message " * 10,
        "epoch 3, update 1,500/20,000: loss 2.346, rate 7.50e-04, 12,346 tokens/s, 30:50 min left, 2 skipped",
        "validation at update 1,500: loss 2.000, bleu 31.26 (best so far), 1.2 s",
        "  source  ein [bold]Hund",
        "  output  a  [31mdog ",
        "  wanted  a dog",
        "",
    ]


def test_further_numbers_of_a_validation_have_their_names() -> None:
    others = {"perplexity": 7.389, "masked_accuracy": 31.0}
    found = Validation(loss=2.0, metric="masked_accuracy", value=31.0, samples=[], seconds=0.5, others=others)
    (line,) = validation_lines(found, update=20, is_best=False)
    assert line == "validation at update 20: loss 2.000, masked_accuracy 31.00, perplexity 7.39, 0.5 s"
    assert found.record() == {"loss": 2.0, "perplexity": 7.389, "masked_accuracy": 31.0, "seconds": 0.5}


def test_the_terminal_shows_the_same_and_no_control_characters_of_texts() -> None:
    written = io.StringIO()
    progress = TerminalProgress(Console(file=written, force_terminal=True, width=160))
    progress.message("model: 3 parameters")
    progress.update(LINE, is_due=False)
    progress.validation(FOUND, update=1500, is_best=True)
    progress.close()
    shown = written.getvalue()
    for text in ("model: 3 parameters", "loss 2.346", "12,346 tokens/s", "bleu 31.26 (best so far)", "ein [bold]Hund"):
        assert text in shown
    assert "\x1b[31mdog" not in shown


def test_the_time_left_follows_the_nearer_limit() -> None:
    assert LINE.seconds_left() == pytest.approx(150 * (20_000 - 1500) / 1500)
    fields = {name: getattr(LINE, name) for name in LINE.__dataclass_fields__}
    assert UpdateLine(**{**fields, "max_seconds": 200.0}).seconds_left() == pytest.approx(50)
    assert math.isinf(UpdateLine(**{**fields, "total_updates": None}).seconds_left())


def test_times_are_readable() -> None:
    assert [format_seconds(s) for s in (0.4, 59.4, 60, 185, 7620, math.inf)] == [
        "0 s", "59 s", "1:00 min", "3:05 min", "2:07 h", "?"
    ]  # fmt: skip


def test_the_log_is_cut_back_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        for update in range(5):
            log.write({"event": "training", "update": update, "text": "a\u2028b"})
    with path.open("a") as file:
        file.write('{"event": "trai')  # cut short by a kill
    with MetricsLog(path, lines=3) as log:
        assert log.lines == 3
        log.write({"event": "training", "update": 9})
    assert [json.loads(line)["update"] for line in path.read_text().split("\n")[:-1]] == [0, 1, 2, 9]


def test_infinite_values_are_null_in_the_log() -> None:
    record = Validation(loss=800.0, metric="loss", value=800.0, samples=[], seconds=1.0).record()
    assert record["perplexity"] is None
    json.loads(json.dumps(record, allow_nan=False))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_the_numbers(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with MetricsLog(tmp_path / "metrics.jsonl", tensorboard=tmp_path / "board") as log:
        log.write({"event": "training", "update": 3, "loss": 1.5})
    board = events.EventAccumulator(str(tmp_path / "board")).Reload()
    (scalar,) = board.Scalars("training/loss")
    assert (scalar.step, scalar.value) == (3, 1.5)


def test_the_first_signal_sets_a_mark_and_the_second_ends_at_once() -> None:
    with StopSignals() as stop:
        stop.check()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(StopRequested) as caught:
            stop.check()
        assert caught.value.number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
