"""What a trained run makes of a set of sources, and how likely it finds the references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clearhead.text.lines import one_line

if TYPE_CHECKING:
    from clearhead.decoding.translator import Translator
    from clearhead.evaluation.reference_sets import ReferenceSet


def translate_set(translator: Translator, data: ReferenceSet, changes: dict[str, Any]) -> list[str]:
    """The best output for every source; `changes` are fields of `DecodingOptions` that differ from the run's own."""
    return [one_line(hypotheses[0].text) for hypotheses in translator.translate_lines(data.sources, **changes)]


def reference_loss(translator: Translator, data: ReferenceSet) -> float:
    """Nats per target token, end token counted, over every reference of every source."""
    pairs = [
        (source, reference)
        for source, acceptable in zip(data.sources, data.references, strict=True)
        for reference in acceptable
    ]
    scores = translator.score([source for source, _ in pairs], [reference for _, reference in pairs])
    return -sum(score.log_probability for score in scores) / sum(score.tokens for score in scores)
