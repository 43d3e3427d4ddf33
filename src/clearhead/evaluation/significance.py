"""Could the difference between two outputs be chance? Paired bootstrap resampling (Koehn 2004).

The test set is drawn anew many times, with replacement; both outputs are measured on every draw. How far the
differences spread around the one observed says how much of it the choice of sentences alone could explain.

BLEU, chrF and TER go through sacrebleu's `PairedTest`. Exact match, PER and CER are sums over lines, so they
are resampled here: p is the share of draws whose difference lies at least as far from the observed difference
as that lies from zero.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.significance import PairedTest, Result

from clearhead.evaluation.metrics import (
    SACREBLEU_METRICS,
    EditCounts,
    character_edits,
    check_lines,
    check_names,
    exact_matches,
    make_sacrebleu_metric,
    reference_streams,
    symbol_edits,
)

RESAMPLED_METRICS = ("exact_match", "per", "cer")  # wer would repeat exact_match, its mirror image
COMPARED_METRICS = ("exact_match", "bleu", "chrf2", "chrf2pp", "ter", "per", "cer")


@dataclass(frozen=True)
class Comparison:
    """One metric of two outputs, in percent. The smaller `p_value`, the less chance explains it."""

    metric: str
    first: float
    second: float
    p_value: float

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


def compare_outputs(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    metrics: Collection[str] | None = None,
    separator: str = " ",
    bleu_tokenizer: str = "13a",
    draws: int = 1000,
    seed: int = 12345,
) -> list[Comparison]:
    """Compares two outputs of the same lines, metric by metric, by a paired bootstrap of `draws` resamples.

    The same seed gives the same answer (sacrebleu's own part takes its seed from SACREBLEU_SEED, 12345 if
    unset). Metrics whose rate is undefined (no symbol in any reference) are left out.
    """
    wanted = COMPARED_METRICS if metrics is None else metrics
    check_names(wanted, bleu_tokenizer)
    check_lines(first, references)
    check_lines(second, references)
    results = _resampled_here(first, second, references, wanted, separator, draws, seed)
    results |= _resampled_by_sacrebleu(first, second, references, wanted, bleu_tokenizer, draws)
    return [results[name] for name in COMPARED_METRICS if name in results]


def _resampled_here(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Collection[str],
    separator: str,
    draws: int,
    seed: int,
) -> dict[str, Comparison]:
    """Exact match, PER and CER: sums over lines."""
    results = {}
    for name in RESAMPLED_METRICS:
        if name not in metrics:
            continue
        one, two = (_line_counts(name, outputs, references, separator) for outputs in (first, second))
        first_rate, second_rate = one.rate(), two.rate()
        if first_rate is not None and second_rate is not None:
            p_value = bootstrap_p_value(one, two, draws=draws, seed=seed)
            results[name] = Comparison(name, first_rate, second_rate, p_value)
    return results


def _line_counts(name: str, outputs: Sequence[str], references: Sequence[Sequence[str]], separator: str) -> EditCounts:
    """What each line adds to the numerator and denominator of the metric."""
    match name:
        case "exact_match":
            return EditCounts([int(hit) for hit in exact_matches(outputs, references)], [1] * len(outputs))
        case "per":
            return symbol_edits(outputs, references, separator)
        case _:
            return character_edits(outputs, references)


def bootstrap_p_value(first: EditCounts, second: EditCounts, *, draws: int, seed: int) -> float:
    """The two-sided p-value of the difference of two rates measured on the same lines.

    p = (1 + #{draws: |d* - d| >= |d|}) / (1 + draws), with d the observed difference and d* a draw's. The one
    added on both sides keeps p above zero, as no number of draws can show that something is impossible.
    """
    counts = np.array([first.edits, first.lengths, second.edits, second.lengths], dtype=np.float64)
    _, lines = counts.shape
    generator = np.random.default_rng(seed)
    observed = _rate_difference(counts.sum(axis=1))
    at_least_as_far = 0
    for _ in range(draws):  # one draw at a time: a matrix of all would take draws x lines numbers
        drawn = generator.integers(lines, size=lines)
        difference = _rate_difference(counts[:, drawn].sum(axis=1))
        # The small slack: differences equal in exact arithmetic must count as equal in floating point.
        at_least_as_far += abs(difference - observed) >= abs(observed) - 1e-9
    return float(1 + at_least_as_far) / (1 + draws)


def _rate_difference(totals: np.ndarray) -> float:
    """Second rate minus first, in percent, from the totals (edits, length, edits, length)."""
    first_edits, first_length, second_edits, second_length = totals
    return float(100.0 * (second_edits / max(second_length, 1) - first_edits / max(first_length, 1)))


def _resampled_by_sacrebleu(
    first: Sequence[str],
    second: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Collection[str],
    bleu_tokenizer: str,
    draws: int,
) -> dict[str, Comparison]:
    """BLEU, chrF and TER; one metric at a time, as `PairedTest` names them its own way."""
    streams = reference_streams(references)
    results = {}
    for name in SACREBLEU_METRICS:
        if name in metrics:
            metric = make_sacrebleu_metric(name, bleu_tokenizer)
            systems = [("first", first), ("second", second)]
            _, table = PairedTest(systems, {name: metric}, streams, test_type="bs", n_samples=draws)()
            (column,) = (key for key in table if key != "System")
            one, two = (result for result in table[column] if isinstance(result, Result))
            # Sacrebleu gives equal scores its smallest p, as if that were beyond chance; we give 1.
            p_value = two.p_value if two.p_value is not None and one.score != two.score else 1.0
            results[name] = Comparison(name, one.score, two.score, p_value)
    return results
