"""What evaluation prints."""

import io
import json

from rich.console import Console

from clearhead.evaluation import compare_outputs, evaluate_outputs, with_loss
from clearhead.evaluation.report import print_comparison, print_scores, to_json

KEYS = [
    "exact_match",
    "bleu",
    "chrf2",
    "chrf2pp",
    "ter",
    "wer",
    "per",
    "cer",
    "loss",
    "perplexity",
    "sentences",
    "signatures",
]


def narrow_console() -> Console:
    """As a terminal of 60 columns, kept in memory."""
    return Console(file=io.StringIO(), width=60)


def test_json_has_the_promised_keys_in_order() -> None:
    report = json.loads(to_json(with_loss(evaluate_outputs(["a b"], [["a b"]]), 0.5)))
    assert list(report) == KEYS
    assert report["exact_match"] == 100.0
    assert report["sentences"] == 1
    assert set(report["signatures"]) == {"bleu", "chrf2", "chrf2pp", "ter"}


def test_json_stays_json_when_a_number_is_undefined() -> None:
    scores = with_loss(evaluate_outputs(["x"], [[""]], metrics=["per", "wer"]), float("nan"))
    report = json.loads(to_json(scores))
    assert report == {"wer": 100.0, "sentences": 1, "signatures": {}}


def test_json_holds_the_comparison() -> None:
    comparison = compare_outputs(["a"], ["b"], [["b"]], metrics=["exact_match"], draws=10)
    report = json.loads(to_json(evaluate_outputs(["a"], [["b"]], metrics=["wer"]), comparison))
    assert report["comparison"]["exact_match"]["difference"] == 100.0


def test_table_shows_every_metric_and_unbroken_signatures() -> None:
    console = narrow_console()
    scores = with_loss(evaluate_outputs(["a b c d"], [["a b c d"]]), 0.25)
    print_scores(scores, title="runs/x", console=console)
    text = console.file.getvalue()
    for label in ("exact match", "WER", "PER", "CER", "BLEU", "chrF2", "chrF2++", "TER", "0.2500", "1.2840"):
        assert label in text
    lines = text.splitlines()
    assert all(any(line.endswith(signature) for line in lines) for signature in scores.signatures.values())


def test_comparison_table() -> None:
    console = narrow_console()
    results = compare_outputs(["x"] * 20, ["b"] * 20, [["b"]] * 20, metrics=["exact_match"], draws=100)
    print_comparison(results, first="one.txt", second="runs/two", draws=100, console=console)
    text = console.file.getvalue()
    assert "+100.00" in text
    assert "one.txt" in text
    assert "100 draws" in text
