"""A run's heads over a data set: what they look at, and what the run is worth without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clearhead.decoding.translator import evaluating
from clearhead.evaluation.metrics import evaluate_outputs
from clearhead.evaluation.runs import reference_loss, translate_set
from clearhead.inspection.heads import Head, heads_off
from clearhead.inspection.statistics import HeadStatistics, head_statistics
from clearhead.text.batches import Batch, collate

if TYPE_CHECKING:
    from clearhead.decoding.translator import Translator
    from clearhead.evaluation.reference_sets import ReferenceSet


SENTENCES_AT_A_TIME = 32


def measure_heads(translator: Translator, data: ReferenceSet) -> list[HeadStatistics]:
    """The statistics of every head over a data set: each source with its first reference, read as it stands."""
    with evaluating(translator.model):
        return head_statistics(translator.model, encoded_batches(translator, data))


def encoded_batches(translator: Translator, data: ReferenceSet) -> Iterator[Batch]:
    """The pairs as the model reads them, those of like lengths side by side."""
    longest = translator.options.max_source_length
    device = next(translator.model.parameters()).device
    sources = translator.source_tokenizer.encode_batch(data.sources)
    targets = translator.target_tokenizer.encode_batch([acceptable[0] for acceptable in data.references])
    pairs = sorted(zip(sources, targets, strict=True), key=lambda pair: len(pair[0]))
    for start in range(0, len(pairs), SENTENCES_AT_A_TIME):
        part = [(source[:longest], target[:longest]) for source, target in pairs[start : start + SENTENCES_AT_A_TIME]]
        yield collate(part).to(device)


@dataclass(frozen=True)
class Ablation:
    """What was measured with some heads switched off; with none, it is the whole model's."""

    heads: tuple[Head, ...]
    loss: float
    """Nats per target token, end token counted."""
    score: float | None
    """The metric on decoded outputs; `None` if it was not asked for."""


def ablate_heads(
    translator: Translator,
    data: ReferenceSet,
    groups: Sequence[Sequence[Head]],
    *,
    metric: str | None = None,
    separator: str = " ",
    changes: dict[str, Any] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> list[Ablation]:
    """Measure the model with each group of heads off; an empty group is the model as it is.

    After Michel et al., 2019, "Are Sixteen Heads Really Better than One?".

    Args:
        translator: the model; afterwards its weights are what they were.
        data: sources and references; the loss is over every reference.
        groups: the heads to switch off together.
        metric: one of `METRICS` to decode for; without it nothing is decoded, which is much faster.
        separator: between the symbols of `per`.
        changes: fields of `DecodingOptions` that differ from the run's own.
        on_progress: told how many groups are done.

    Raises:
        ConfigError: an unknown metric.
    """
    found = []
    for heads in groups:
        with heads_off(translator.model, heads):
            score = None
            if metric is not None:
                outputs = translate_set(translator, data, changes or {})
                scores = evaluate_outputs(outputs, data.references, metrics=[metric], separator=separator)
                score = getattr(scores, metric)
            found.append(Ablation(tuple(heads), reference_loss(translator, data), score))
        if on_progress is not None:
            on_progress(len(found))
    return found
