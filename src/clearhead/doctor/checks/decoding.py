"""Does decoding with a cache, and in beams, give what the model says?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.doctor.examination import Examination, difference
from clearhead.doctor.finding import Finding, fault, fine, not_measured
from clearhead.doctor.places import places
from clearhead.doctor.training_probe import memorised


def check_cache(examination: Examination) -> Finding:
    """The logits made token by token with the cache, beside those of one forward pass."""
    patient = examination.patient
    if patient.cached is None or patient.kind == "encoder":
        return not_measured("needs a way to decode with the cache: Patient(cached=…)")
    inputs = examination.padded_inputs() if patient.kind == "encoder-decoder" else examination.inputs()
    source = inputs[0]
    with torch.no_grad():
        stepped = patient.cached(examination.exact, source, inputs[-1])
    whole = examination.look(examination.exact, *inputs)
    if stepped.shape != whole.shape:
        return fault(
            f"the cache gives logits of {tuple(stepped.shape)} instead of {tuple(whole.shape)}",
            CAUSES,
            where(examination),
        )
    by_position = [difference(stepped[:, t], whole[:, t]) for t in range(whole.size(1))]
    measured = f"logits with the cache differ by {max(by_position):.1e} from those of one pass"
    if max(by_position) <= examination.tolerance:
        return fine(measured)
    first = next(t for t, change in enumerate(by_position) if change > examination.tolerance)
    return fault(f"{measured}, from position {first} on", CAUSES, where(examination))


CAUSES = (
    "positions begin at 0 again in every step: position t has to be added to the token of step t",
    "is_causal=True with a cache: torch aligns its mask top-left, so a new query sees the first key only",
    "keys and values are put into the cache at the wrong place, or twice, or those of another layer",
    "the source's padding mask is forgotten while decoding",
)


def where(examination: Examination) -> tuple[str, ...]:
    """The function that decodes, and the model."""
    patient = examination.patient
    return places(patient.cached if patient.cached is not None else patient.decode, examination.model)


def check_beam(examination: Examination) -> Finding:
    """A model that knows ten sentences by heart has to give each of them for its own source, alone and in a batch."""
    patient = examination.patient
    if patient.decode is None or patient.kind != "encoder-decoder" or not patient.fresh_is_given:
        return not_measured("needs a way to decode: Patient(decode=…), of an encoder-decoder")
    trained = memorised(examination)
    if trained.teacher_forced < 0.9:
        return not_measured("the model did not learn ten sentences, so none can be asked for")
    source = trained.examples.source
    with torch.no_grad():
        together = {beam: patient.decode(trained.model, source, beam) for beam in (1, 4)}
        alone = {
            beam: [patient.decode(trained.model, row, beam)[0] for row in rows_of(source, patient.pad)]
            for beam in (1, 4)
        }
    wanted = [row[1 : row.index(patient.eos, 1)] for row in trained.examples.target.tolist()]
    right = {beam: sum(a == b for a, b in zip(found, wanted, strict=True)) for beam, found in together.items()}
    measured = f"of ten sentences known by heart a batch gives {right[1]} with beam 1, {right[4]} with beam 4"
    for beam in (1, 4):
        strangers = [
            row for row, found in enumerate(together[beam])
            if found != alone[beam][row] and found in wanted and found != wanted[row]
        ]  # fmt: skip
        if strangers:
            causes: Sequence[str] = (
                "encoder states are tiled s1 s2 s3 s1 s2 s3 (repeat), but beams lie s1 s1 s1 …: repeat_interleave",
                "beams are reordered without their cache, or over the whole batch instead of within a sentence",
            )
            return fault(
                f"{measured}; sentence {strangers[0]} gets the answer to another one", causes, where(examination)
            )
        if together[beam] != alone[beam]:
            rows = [row for row in range(10) if together[beam][row] != alone[beam][row]]
            causes = ("neighbours have a say: padding is seen, or finished beams go on changing", *CAUSES)
            return fault(
                f"{measured}; sentences {rows} differ alone and in a batch, beam {beam}", causes, where(examination)
            )
    if right[4] < right[1] - 2:
        causes = ("beam search scores hypotheses wrongly: sums of log-probabilities, finished ones kept", *CAUSES[:1])
        return fault(measured, causes, where(examination))
    return fine(measured)


def rows_of(source: Tensor, pad: int) -> list[Tensor]:
    """Each row by itself, without its padding."""
    return [row[None, : int((row != pad).nonzero().max()) + 1] for row in source]
