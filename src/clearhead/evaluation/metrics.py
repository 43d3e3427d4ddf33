"""The metrics: each compares output lines with one or more acceptable references per line.

| metric      | is                                                                                  | better |
|-------------|-------------------------------------------------------------------------------------|--------|
| exact_match | percent of lines that equal one of their references, character for character        | higher |
| wer         | percent of lines that equal none of them: 100 - exact_match, the word error rate of | lower  |
|             | grapheme-to-phoneme work, where a line is one word                                  |        |
| per         | edits between symbols (what stands between separators) to the nearest reference,    | lower  |
|             | in percent of that reference's symbols, summed over all lines before dividing       |        |
| cer         | the same over characters (code points, white space included)                        | lower  |
| bleu        | BLEU, up to 4-grams, corpus level (Papineni et al. 2002), by sacrebleu              | higher |
| chrf2       | chrF2, character 6-grams, beta 2 (Popovic 2015), by sacrebleu                       | higher |
| chrf2pp     | chrF2++, the same with word 2-grams (Popovic 2017), by sacrebleu                    | higher |
| ter         | translation edit rate: word edits and shifts (Snover et al. 2006), by sacrebleu     | lower  |
| loss        | mean of -ln p(token) over all target tokens, end token included, no label smoothing | lower  |
| perplexity  | e to the loss                                                                       | lower  |

With the separator " " the symbols of ordinary text are its words, so `per` is what speech recognition calls
word error rate. Texts are compared as they are: no case folding, no Unicode normalisation, nothing stripped.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from rapidfuzz.distance import Levenshtein
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from clearhead.errors import ConfigError, DataError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

METRICS = ("exact_match", "bleu", "chrf2", "chrf2pp", "ter", "wer", "per", "cer")
SACREBLEU_METRICS = ("bleu", "chrf2", "chrf2pp", "ter")
# Those of sacrebleu that need no download and no further package.
BLEU_TOKENIZERS = ("13a", "none", "zh", "intl", "char")


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What was measured; None where a metric was not asked for or can't be computed.

    All are percentages from 0 (error rates may exceed 100), but for loss (nats per target token) and
    perplexity. `signatures` holds sacrebleu's: what one must say beside a score so that others can repeat it.
    """

    exact_match: float | None = None
    bleu: float | None = None
    chrf2: float | None = None
    chrf2pp: float | None = None
    ter: float | None = None
    wer: float | None = None
    per: float | None = None
    cer: float | None = None
    loss: float | None = None
    perplexity: float | None = None
    sentences: int
    signatures: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, float | int | dict[str, str]]:
        """Only what was measured, in the order of the fields; infinite or undefined numbers are left out."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if value is not None and not (isinstance(value, float) and not math.isfinite(value))
        }


@dataclass(frozen=True)
class EditCounts:
    """Per line: edits to the nearest reference, and its length. Their sums give the error rate."""

    edits: list[int]
    lengths: list[int]

    def rate(self) -> float | None:
        """Percent, micro-averaged; None if the references hold no symbol at all: nothing to divide by."""
        total = sum(self.lengths)
        return 100.0 * sum(self.edits) / total if total else None


def evaluate_outputs(
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    metrics: Collection[str] | None = None,
    separator: str = " ",
    bleu_tokenizer: str = "13a",
) -> Scores:
    """Measures `outputs[i]` against `references[i]`, one or more acceptable texts (each line may have another
    number).

    `metrics` names those wanted (all of `METRICS` if None); `separator` stands between the symbols that `per`
    counts (empty: every character is a symbol); `bleu_tokenizer` is one of `BLEU_TOKENIZERS`: "13a" for plain
    text, "none" for text that is tokenised already, "zh" for Chinese.

    Raises:
        DataError: nothing to evaluate, different numbers of lines, or a line without a reference.
        ConfigError: an unknown metric or BLEU tokenizer.

    """
    wanted = METRICS if metrics is None else metrics
    check_names(wanted, bleu_tokenizer)
    check_lines(outputs, references)
    values: dict[str, float | None] = {}
    signatures: dict[str, str] = {}

    if "exact_match" in wanted or "wer" in wanted:
        exact = 100.0 * sum(exact_matches(outputs, references)) / len(outputs)
        values |= {"exact_match": exact, "wer": 100.0 - exact}
    if "per" in wanted:
        values["per"] = symbol_edits(outputs, references, separator).rate()
    if "cer" in wanted:
        values["cer"] = character_edits(outputs, references).rate()

    streams = reference_streams(references)
    for name in SACREBLEU_METRICS:
        if name in wanted:
            metric = make_sacrebleu_metric(name, bleu_tokenizer)
            values[name] = metric.corpus_score(outputs, streams).score
            signatures[name] = str(metric.get_signature())
    measured = {name: value for name, value in values.items() if name in wanted}
    return Scores(sentences=len(outputs), signatures=signatures, **measured)


def with_loss(scores: Scores, loss: float) -> Scores:
    """The scores with `loss` (nats per target token, end token counted) and its perplexity filled in."""
    return replace(scores, loss=loss, perplexity=math.exp(loss) if loss < 700 else math.inf)


def exact_matches(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[bool]:
    """Which lines equal one of their references."""
    return [output in acceptable for output, acceptable in zip(outputs, references, strict=True)]


def symbol_edits(outputs: Sequence[str], references: Sequence[Sequence[str]], separator: str = " ") -> EditCounts:
    """Edit distances over symbols; runs of the separator count as one, so they make no empty symbols."""
    return count_edits(outputs, references, lambda text: split_symbols(text, separator))


def character_edits(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> EditCounts:
    """Edit distances over characters (Unicode code points)."""
    return count_edits(outputs, references, list)


def split_symbols(text: str, separator: str) -> list[str]:
    """The non-empty pieces between separators; every character if the separator is empty."""
    return [symbol for symbol in text.split(separator) if symbol] if separator else list(text)


def count_edits(
    outputs: Sequence[str], references: Sequence[Sequence[str]], split: Callable[[str], list[str]]
) -> EditCounts:
    """Insertions, deletions and substitutions (one each) from every output to its nearest reference.

    Of references equally near the longest counts, so that their order in the file can't matter.
    """
    edits, lengths = [], []
    for output, acceptable in zip(outputs, references, strict=True):
        symbols = split(output)
        pieces = [split(reference) for reference in acceptable]
        distance, minus_length = min((Levenshtein.distance(symbols, piece), -len(piece)) for piece in pieces)
        edits.append(distance)
        lengths.append(-minus_length)
    return EditCounts(edits, lengths)


def make_sacrebleu_metric(name: str, bleu_tokenizer: str) -> "Metric":
    """Sacrebleu's metric with the defaults that papers report."""
    match name:
        case "bleu":
            return BLEU(tokenize=bleu_tokenizer, force=True)  # force: tokenised text is no mistake here
        case "chrf2":
            return CHRF()
        case "chrf2pp":
            return CHRF(word_order=2)
        case "ter":
            return TER()
        case _:
            raise ValueError(f"{name!r} is not a metric of sacrebleu")


def reference_streams(references: Sequence[Sequence[str]]) -> list[list[Any]]:
    """Sacrebleu's way round: stream j holds every line's j-th reference, None where a line has fewer.

    (Sacrebleu takes None, but its type hints don't say so: hence Any.)
    """
    most = max(len(acceptable) for acceptable in references)
    padded = [[*acceptable, *[None] * (most - len(acceptable))] for acceptable in references]
    return [list(stream) for stream in zip(*padded, strict=True)]


def check_names(metrics: Collection[str], bleu_tokenizer: str) -> None:
    """Raises ConfigError on a name that isn't one."""
    for name in metrics:
        if name not in METRICS:
            near = get_close_matches(name, METRICS, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(f"there is no metric {name!r}; {meant}The metrics are: {', '.join(METRICS)}")
    if bleu_tokenizer not in BLEU_TOKENIZERS:
        raise ConfigError(f"there is no BLEU tokenizer {bleu_tokenizer!r}; choose one of: {', '.join(BLEU_TOKENIZERS)}")


def check_lines(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raises DataError where outputs and references can't be put side by side."""
    if len(outputs) != len(references):
        raise DataError(f"there are {len(outputs)} outputs but references for {len(references)} lines")
    if not outputs:
        raise DataError("there is nothing to evaluate: no output and no reference")
    for number, acceptable in enumerate(references, start=1):
        if not acceptable:
            raise DataError(f"line {number} has no reference; give at least one, or leave the line out")
