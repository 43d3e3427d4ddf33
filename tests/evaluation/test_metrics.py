"""The metrics against values worked out by hand, jiwer, sacrebleu's command and another edit distance."""

import json
import math
import subprocess
import sys
from pathlib import Path

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import ConfigError, DataError
from clearhead.evaluation import METRICS, evaluate_outputs, with_loss
from clearhead.evaluation.metrics import split_symbols, symbol_edits

ENGLISH = [
    ("The cat sat on the mat .", ["The cat sat on a mat .", "A cat sat on the mat ."]),
    ("A man in a shirt stands .", ["A man in a shirt is standing .", "A man stands in a blue shirt ."]),
    ("Two dogs run through snow .", ["Two dogs are running in the snow .", "Two dogs run through snow ."]),
    ("A girl plays .", ["A small girl is playing with a ball .", "A girl plays with a ball ."]),
]
WORDS = st.lists(st.sampled_from(["AH", "B", "IY", "T", "EH1"]), max_size=6)
LETTERS = st.text(alphabet="abç中 ", max_size=8)


def edit_distance(first: list[str], second: list[str]) -> int:
    """The definition, written as a recursion over the ends of both (slow, obviously right)."""
    if not first or not second:
        return len(first) + len(second)
    return min(
        edit_distance(first[1:], second[1:]) + (first[0] != second[0]),
        edit_distance(first[1:], second) + 1,
        edit_distance(first, second[1:]) + 1,
    )


def test_error_rates_by_hand() -> None:
    # case V7: symbols of several characters count as one
    outputs = ["TH IH1 NG", "AH B", "K AE T S"]
    references = [["TH IH1 NG"], ["EY B IY", "AH B IY IY"], ["D AO G"]]
    scores = evaluate_outputs(outputs, references, metrics=["exact_match", "wer", "per"])
    assert scores.exact_match == pytest.approx(100 / 3)
    assert scores.wer == pytest.approx(200 / 3)
    # Line 2: both references are two edits away, so the longer one counts (4 symbols). Line 3: 4 edits of 3
    # symbols.
    assert scores.per == pytest.approx(100 * (0 + 2 + 4) / (3 + 4 + 3))
    assert scores.bleu is None
    assert scores.sentences == 3
    assert scores.signatures == {}


def test_micro_average_differs_from_mean_of_lines() -> None:
    scores = evaluate_outputs(["a", "b b b b b b b b b b"], [["x"], ["b b b b b b b b b b"]], metrics=["per"])
    assert scores.per == pytest.approx(100 / 11)  # a mean of the lines' rates would be 50


def test_any_reference_is_right_whatever_their_order() -> None:
    references = [["AH B IY", "AE B IY"], ["T"], ["EY", "AH", "AA"]]
    outputs = ["AE B IY", "D", "AA"]
    forwards = evaluate_outputs(outputs, references)
    backwards = evaluate_outputs(outputs, [list(reversed(acceptable)) for acceptable in references])
    assert forwards.exact_match == pytest.approx(200 / 3)
    for name in METRICS:
        assert getattr(forwards, name) == pytest.approx(getattr(backwards, name))


@given(st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_symbol_edits_equal_the_definition(lines: list[tuple[list[str], list[list[str]]]]) -> None:
    counts = symbol_edits(
        [" ".join(words) for words, _ in lines], [[" ".join(words) for words in refs] for _, refs in lines]
    )
    for edits, length, (output, references) in zip(counts.edits, counts.lengths, lines, strict=True):
        distances = [edit_distance(output, reference) for reference in references]
        assert edits == min(distances)
        nearest = zip(distances, references, strict=True)
        assert length == max(len(reference) for distance, reference in nearest if distance == edits)


@given(st.lists(st.tuples(LETTERS, LETTERS.filter(str.strip)), min_size=1, max_size=4))
def test_error_rates_equal_jiwer(lines: list[tuple[str, str]]) -> None:
    # jiwer strips and folds white space, we don't
    outputs = [" ".join(output.split()) for output, _ in lines]
    references = [" ".join(reference.split()) for _, reference in lines]
    scores = evaluate_outputs(outputs, [[text] for text in references], metrics=["per", "cer"])
    assert scores.per == pytest.approx(100 * jiwer.wer(references, outputs))
    assert scores.cer == pytest.approx(100 * jiwer.cer(references, outputs))


@pytest.mark.parametrize("tokenizer", ["13a", "none", "intl", "char", "zh"])
def test_sacrebleu_scores_and_signatures_equal_its_command(tmp_path: Path, tokenizer: str) -> None:
    lines = [("猫坐在垫子上。", ["猫在垫子上坐着。", "一只猫坐在垫子上。"]), *ENGLISH] if tokenizer == "zh" else ENGLISH
    outputs = [output for output, _ in lines]
    references = [acceptable for _, acceptable in lines]
    scores = evaluate_outputs(outputs, references, bleu_tokenizer=tokenizer)
    command = run_sacrebleu(tmp_path, outputs, references, "-m", "bleu", "chrf", "ter", "-tok", tokenizer)
    plus = run_sacrebleu(tmp_path, outputs, references, "-m", "chrf", "--chrf-word-order", "2")
    expected = dict(zip(["bleu", "chrf2", "ter", "chrf2pp"], [*command, *plus], strict=True))
    for name, report in expected.items():
        assert getattr(scores, name) == pytest.approx(report["score"], abs=1e-9)
        assert scores.signatures[name] == report["signature"]


def run_sacrebleu(folder: Path, outputs: list[str], references: list[list[str]], *options: str) -> list[dict]:
    """Sacrebleu's own command on files; one report per metric."""
    (folder / "out").write_text("\n".join(outputs) + "\n", encoding="utf-8")
    paths = []
    for number, stream in enumerate(zip(*references, strict=True)):
        paths.append(folder / f"ref{number}")
        paths[-1].write_text("\n".join(stream) + "\n", encoding="utf-8")
    files = [*map(str, paths), "-i", str(folder / "out")]
    command = [sys.executable, "-m", "sacrebleu", *files, "-w", "12", *options]
    answer = subprocess.run(command, capture_output=True, check=True, encoding="utf-8")
    reports = json.loads(answer.stdout)
    return reports if isinstance(reports, list) else [reports]


def test_lines_may_have_different_numbers_of_references() -> None:
    outputs = [output for output, _ in ENGLISH]
    ragged = [ENGLISH[0][1], ENGLISH[1][1][:1], ENGLISH[2][1], ENGLISH[3][1][1:]]
    # a repeated reference adds no n-gram and no length
    filled = [(acceptable * 2)[:2] for acceptable in ragged]
    one, other = evaluate_outputs(outputs, ragged), evaluate_outputs(outputs, filled)
    for name in ("bleu", "chrf2", "chrf2pp", "exact_match", "per", "cer"):
        assert getattr(one, name) == pytest.approx(getattr(other, name))
    assert "nrefs:var" in one.signatures["bleu"]


def test_perfect_output_and_empty_output() -> None:
    references = [acceptable for _, acceptable in ENGLISH]
    perfect = evaluate_outputs([acceptable[0] for acceptable in references], references)
    assert [perfect.exact_match, perfect.bleu, perfect.chrf2, perfect.chrf2pp] == pytest.approx([100.0] * 4)
    assert [perfect.wer, perfect.per, perfect.cer, perfect.ter] == [0.0] * 4
    empty = evaluate_outputs([""] * len(references), references)
    assert [empty.exact_match, empty.bleu, empty.chrf2] == [0.0] * 3
    assert [empty.wer, empty.per, empty.cer] == [100.0] * 3


def test_rates_without_any_reference_symbol_are_left_out() -> None:
    scores = evaluate_outputs(["", "x"], [[""], [""]])
    assert scores.exact_match == 50.0
    assert scores.per is None
    assert "per" not in scores.to_dict()


def test_only_wanted_metrics_are_computed() -> None:
    scores = evaluate_outputs(["a"], [["a"]], metrics={"wer"})
    assert scores.to_dict() == {"wer": 0.0, "sentences": 1, "signatures": {}}
    assert set(evaluate_outputs(["a"], [["a"]]).to_dict()) == {*METRICS, "sentences", "signatures"}


def test_loss_and_perplexity() -> None:
    scores = with_loss(evaluate_outputs(["a"], [["a"]], metrics=["wer"]), math.log(8))
    assert scores.perplexity == pytest.approx(8)
    overflowing = with_loss(scores, 1e6).to_dict()
    assert overflowing["loss"] == 1e6
    assert "perplexity" not in overflowing


@pytest.mark.parametrize(
    ("separator", "expected"),
    [(" ", ["a-b", "c"]), ("-", ["a", "b  c"]), ("", ["a", "-", "b", " ", " ", "c"])],
)
def test_separator(separator: str, expected: list[str]) -> None:
    # case V7
    assert split_symbols("a-b  c", separator) == expected


def test_mistakes_are_named() -> None:
    with pytest.raises(DataError, match="2 outputs but references for 1 lines"):
        evaluate_outputs(["a", "b"], [["a"]])
    with pytest.raises(DataError, match="line 2 has no reference"):
        evaluate_outputs(["a", "b"], [["a"], []])
    with pytest.raises(DataError, match="nothing to evaluate"):
        evaluate_outputs([], [])
    with pytest.raises(ConfigError, match="'blue'; did you mean 'bleu'"):
        evaluate_outputs(["a"], [["a"]], metrics=["blue"])
    with pytest.raises(ConfigError, match="no BLEU tokenizer 'moses'"):
        evaluate_outputs(["a"], [["a"]], bleu_tokenizer="moses")
