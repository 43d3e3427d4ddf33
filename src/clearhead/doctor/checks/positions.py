"""Does order matter, and is every position another one? Does the decoder listen to the encoder?"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from clearhead.doctor.examination import (
    Examination,
    difference,
    embedding_gradients,
    stacks_of_layers,
)
from clearhead.doctor.finding import Finding, fault, fine, not_measured
from clearhead.doctor.places import places

SAME_TOKENS = 24
"""The length of a sequence of one token repeated."""


def check_positions(examination: Examination) -> Finding:
    """Turn the sentence around; repeat one token; and go as far as the model says it can."""
    patient = examination.patient
    if patient.relative_positions and patient.kind == "decoder":
        return not_measured("positions are relative, and a causal mask alone shows order")
    causes: Sequence[str] = (
        "positions are missing: x = embedding(ids) + position, or rotary positions in attention",
        "positions are added along the batch's axis: batches first take table[:x.size(1)], not table[:x.size(0)]",
        "the table of positions is all zeros, or is cut to length 1 by a slice",
    )
    parts = []
    for side, order in order_effects(examination).items():
        parts.append(f"turning the {side} around changes {order:.1e}")
        if order <= examination.tolerance:
            return fault(f"{parts[-1]}: its order is invisible", causes, position_places(examination))
    for side, (logits, first) in repeated_token(examination).items():
        alike = equal_positions(logits, examination.tolerance)
        parts.append(f"of one token repeated in the {side}, {len(alike)} positions look like another one")
        if logits.size(0) > 1 and len(alike) == logits.size(0) - 1:
            return fault(
                f"all positions of the {side} give the same output for the same token",
                causes,
                position_places(examination),
            )
        repeats = equal_positions(first, 1e-6) if first is not None else []
        if alike or (repeats and first is not None and len(repeats) < first.size(0) - 1):
            place, like = (alike or repeats)[0]
            return fault(
                f"position {place} of the {side} is the same as position {like}",
                ("positions repeat: taken modulo something, clamped to the table's end, or counted in half precision",),
                position_places(examination),
            )
    if patient.max_length is not None:
        try:
            ids = examination.inputs(batch=1, source=patient.max_length, target=patient.max_length)
            if not examination.look(examination.model, *ids).isfinite().all():
                raise ValueError("outputs are not finite")
        except Exception as error:
            return fault(
                f"an input of max_length = {patient.max_length} fails: {type(error).__name__}: {error}",
                ("the table of positions is shorter than the limit (start and end tokens count too)",),
                position_places(examination),
            )
    return fine("; ".join(parts))


def order_effects(examination: Examination) -> dict[str, float]:
    """How much turning each side's tokens around changes, relative to the outputs' size."""
    patient, model = examination.patient, examination.exact
    ids, *rest = examination.inputs(batch=1)
    if patient.kind == "encoder-decoder":
        turned = torch.cat([ids[:, :-1].flip(1), ids[:, -1:]], 1)
        return {"source": difference(examination.look(model, turned, *rest), examination.look(model, ids, *rest))}
    if patient.kind == "encoder":
        turned = examination.look(model, ids.flip(1)).flip(1)
        return {"input": difference(turned, examination.look(model, ids))}
    return {}  # a causal mask alone shows order to a decoder


def repeated_token(examination: Examination) -> dict[str, tuple[Tensor, Tensor | None]]:
    """For one token repeated: each position's logits, and its input to the first layer, by side."""
    patient, model = examination.patient, examination.exact
    length = min(SAME_TOKENS, patient.max_length or SAME_TOKENS)
    same = examination.ordinary[:1].expand(1, length).clone()
    stacks = list(stacks_of_layers(model).values())
    entered: list[Tensor | None] = []
    handles = [
        stack[0].register_forward_pre_hook(
            lambda _, args, kwargs: entered.append(first_tensor(args, kwargs)), with_kwargs=True
        )
        for stack in stacks
    ]
    try:
        inputs = [examination.inputs(batch=1)[0], same] if patient.kind == "encoder-decoder" else [same]
        logits = examination.look(model, *inputs)[0]
    finally:
        for handle in handles:
            handle.remove()
    first = entered[-1] if entered else None
    if first is not None:
        first = first.squeeze(0) if first.size(0) == 1 else first.squeeze(1) if first.dim() == 3 else first
        first = first if first.dim() == 2 and first.size(0) == length else None
    return {"target" if patient.kind == "encoder-decoder" else "input": (logits, first)}


def first_tensor(args: tuple[object, ...], kwargs: dict[str, object]) -> Tensor | None:
    """The first tensor that a module is given."""
    return next((x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point()), None)


def equal_positions(states: Tensor, tolerance: float) -> list[tuple[int, int]]:
    """Every position that equals an earlier one, with the first that it equals: rows of `(t, m)`."""
    states = states.double()
    size = states.abs().max().clamp_min(1e-30)
    found = []
    for place in range(1, states.size(0)):
        gaps = (states[:place] - states[place]).abs().amax(-1) / size
        if float(gaps.min()) <= tolerance:
            found.append((place, int(gaps.argmin())))
    return found


def position_places(examination: Examination) -> tuple[str, ...]:
    """Modules whose name says that they are about positions."""
    named = [m for name, m in examination.exact.named_modules() if "pos" in f"{name}{type(m).__name__}".lower()]
    return places(*[m for m in named if type(m).__module__.split(".")[0] != "torch"][:2], examination.model)


def check_encoder(examination: Examination) -> Finding:
    """Give each target another source; and the gradient of the logits by the source's embeddings and the encoder."""
    if examination.patient.kind != "encoder-decoder":
        return not_measured("there is but one stack")
    model = copy.deepcopy(examination.exact).requires_grad_()
    source, ids = examination.inputs()
    moved = difference(examination.look(model, source.roll(1, 0), ids), examination.look(model, source, ids))
    causes: Sequence[str] = (
        "cross-attention takes its keys and values from the decoder instead of the encoder's output",
        "the encoder's output is not handed on, is overwritten, or was detached",
        "the source's mask hides every token",
    )
    measured = f"another source moves the logits by {moved:.1e} of their size"
    if moved <= examination.tolerance:
        return fault(f"{measured}: the decoder ignores its source", causes, cross_places(examination))
    with embedding_gradients(model, source) as embedded:
        examination.logits(model, source, ids).square().sum().backward()  # type: ignore[no-untyped-call]
    if embedded:
        slope = max(float(leaf.grad.abs().max()) if leaf.grad is not None else 0.0 for leaf in embedded)
        measured += f"; gradient by the source's embeddings {slope:.1e}"
        if slope == 0.0:
            causes = ("memory.detach(), .data, torch.no_grad() or a numpy round trip between encoder and decoder",)
            return fault(f"{measured}: nothing is learned through it", causes, cross_places(examination))
    return fine(measured)


def cross_places(examination: Examination) -> tuple[str, ...]:
    """The decoder's layers and the model itself."""
    stacks = list(stacks_of_layers(examination.exact).values())
    return places(stacks[-1][0] if stacks else None, examination.model)
