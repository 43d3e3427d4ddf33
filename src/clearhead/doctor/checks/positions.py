"""Does order matter, and is every position another one? Does the decoder listen to the encoder?"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.doctor.attention_trace import trace_attention
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
    """Change the order of a sentence; repeat one token; and go as far as the model says it can."""
    patient = examination.patient
    causes: Sequence[str] = (
        "positions are missing: x = embedding(ids) + position, or rotary positions in attention",
        "positions are added along the batch's axis: batches first take table[:x.size(1)], not table[:x.size(0)]",
        "the table of positions is all zeros, or is cut to length 1 by a slice",
    )
    parts = []
    for turned, order in order_effects(examination).items():
        parts.append(f"the {turned} in another order changes {order:.1e}")
        if order <= examination.tolerance:
            return fault(f"{parts[-1]}: its order is invisible", causes, position_places(examination))
    side, repeated = repeated_token(examination)
    alike = equal_positions(repeated.logits, examination.tolerance)
    parts.append(f"of one token repeated in the {side}, {len(alike)} positions look like another one")
    entered = repeated.entered
    repeats = equal_positions(entered, 1e-6) if entered is not None else []
    others = len(repeated.logits) - 1
    if len(alike) == others:
        measured = f"all positions of the {side} give the same output for the same token"
        if entered is not None and len(repeats) < others:
            return fault(f"{measured}, though they go in different", causes, position_places(examination))
        if not repeated.weights:
            return not_measured(f"{measured}, and no attention was seen that could tell distances")
        unevenness = max(map(uneven, repeated.weights))
        if unevenness <= examination.tolerance:
            return fault(f"{measured}, and attention weighs all of them alike", causes, position_places(examination))
        parts[-1] = f"one token repeated in the {side} gives one output"
        parts.append(f"its places have weights in attention that differ by {unevenness:.1e}: positions are relative")
        return fine("; ".join(parts))  # no table that could be too short
    if alike or 0 < len(repeats) < others:
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
    """How much another order of each side's tokens changes, relative to the outputs' size.

    Not the order turned around: where only the size of a distance counts, that rightly changes nothing.
    """
    patient, model = examination.patient, examination.exact
    ids, *rest = examination.inputs(batch=1)
    if patient.kind == "decoder":
        return {}  # a causal mask alone shows order to a decoder
    order = torch.arange(ids.size(1))
    order[:-1] = order[:-1] * 3 % (len(order) - 1)  # 0, 3, 6, 9, 2 …, the end token in its place
    moved = examination.look(model, ids[:, order], *rest)
    if patient.kind == "encoder-decoder":
        return {"source": difference(moved, examination.look(model, ids, *rest))}
    return {"input": difference(moved, examination.look(model, ids)[:, order])}


@dataclass(frozen=True)
class RepeatedToken:
    """What a stack makes of one token again and again."""

    logits: Tensor
    """`(t, v)`."""
    entered: Tensor | None
    """`(t, m)`: the states that enter the first layer, if they were seen."""
    weights: list[Tensor]
    """`(b, h, t, t)` or `(b h, t, t)`: of every self-attention that was seen."""


def repeated_token(examination: Examination) -> tuple[str, RepeatedToken]:
    """One token repeated in the only side, or in the target; and that side's name."""
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
        with trace_attention(model) as trace:
            logits = examination.logits(model, *inputs)[0]
    finally:
        for handle in handles:
            handle.remove()
    first = entered[-1] if entered else None
    if first is not None:
        first = first.squeeze(0) if first.size(0) == 1 else first.squeeze(1) if first.dim() == 3 else first
        first = first if first.dim() == 2 and first.size(0) == length else None
    weights = [call.weights for call in trace.calls if call.weights.shape[-2:] == (length, length)]
    side = "target" if patient.kind == "encoder-decoder" else "input"
    return side, RepeatedToken(logits, first, weights)


def uneven(weights: Tensor) -> float:
    """The largest difference between weights of a row that are not masked, relative to the larger one."""
    seen = weights > 1e-6
    greatest, least = weights.amax(-1), weights.masked_fill(~seen, torch.inf).amin(-1)
    return float((1 - least / greatest)[seen.any(-1)].max())


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
