"""Does the future leak into the past?"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from clearhead.doctor.attention_trace import trace_attention
from clearhead.doctor.examination import Examination, embedding_gradients
from clearhead.doctor.finding import Finding, fault, fine, not_measured
from clearhead.doctor.places import places

CAUSES = (
    "no causal mask at all: is_causal or a triangular mask has to reach every self-attention of the decoder",
    "the triangle is one off: torch.triu(…, diagonal=1) marks what to hide, torch.tril(…) what to show",
    "positions are mixed by a reshape: heads are split by view(b, t, h, d).transpose(1, 2), never by view(b, h, t, d)",
    "the softmax or a normalisation runs over the axis of positions",
)
OUTGROWN = (
    "masked scores are set to a finite number that large scores outgrow: fill in -inf, or torch.finfo(dtype).min",
    "the mask is a penalty added to the scores instead of a boolean one",
)
LARGE = 30.0
"""All matrices times this: scores then are about 900 times as large, as in a model whose training runs away."""


def check_causality(examination: Examination) -> Finding:
    """Change each token and ask whether any logits before it move; and the same by gradients, without a step's size."""
    if not examination.patient.has_decoder:
        return not_measured("an encoder is meant to look both ways")
    leak, where = leak_by_change(examination, examination.exact)
    slope = leak_by_gradient(examination)
    measured = (
        f"changing a token moves earlier logits by {leak:.1e} of their size; gradient by later tokens {slope:.1e}"
    )
    if leak > examination.tolerance or slope > examination.tolerance:
        return fault(measured, CAUSES, leaking_places(examination))
    large, _ = leak_by_change(examination, scaled_up(examination.exact))
    measured += f"; with weights 30 times as large {large:.1e}"
    if large > examination.tolerance:
        return fault(measured, OUTGROWN, leaking_places(examination, scaled_up(examination.exact)))
    for kind in (torch.float16, torch.bfloat16):
        half = leak_in(examination, kind)
        if half is not None:
            measured += f", in {str(kind).removeprefix('torch.')} {half:.1e}"
            if half > 0.02:
                return fault(measured, OUTGROWN, leaking_places(examination))
    return fine(f"{measured} ({where} positions)")


def leak_by_change(examination: Examination, model: nn.Module) -> tuple[float, int]:
    """The largest relative change of logits before a changed token, and the number of positions tried.

    What was not finite before is left out: that is another check's business.
    """
    *first, ids = examination.inputs(batch=2)
    before = examination.look(model, *first, ids)
    size = before[before.isfinite()].abs().max().clamp_min(1e-30) if before.isfinite().any() else torch.tensor(1.0)
    replacement = examination.random_ids(2, ids.size(1), seed=7)
    worst = 0.0
    for place in range(1, ids.size(1)):
        changed = ids.clone()
        changed[:, place] = torch.where(
            replacement[:, place] == ids[:, place], replacement[:, 0], replacement[:, place]
        )
        moved = (examination.look(model, *first, changed) - before)[:, :place].abs()
        moved = moved[before[:, :place].isfinite()]
        if moved.numel():
            worst = max(worst, float((moved / size).nan_to_num(nan=1.0, posinf=1.0).max()))
    return worst, ids.size(1)


def leak_by_gradient(examination: Examination) -> float:
    """The gradient of the logits at the middle by embeddings behind it, over that by embeddings up to it."""
    *first, ids = examination.inputs(batch=1)
    middle = ids.size(1) // 2
    with embedding_gradients(examination.exact, ids) as embedded:
        logits = examination.logits(examination.exact, *first, ids)
    if not embedded or not logits.requires_grad:
        return 0.0
    gradients = torch.autograd.grad(logits[:, middle].square().sum(), embedded, allow_unused=True)
    found = [g for g in gradients if g is not None and g.isfinite().all()]
    if not found:
        return 0.0
    later = max(float(g[:, middle + 1 :].abs().max()) for g in found)
    return later / max(1e-30, *(float(g[:, : middle + 1].abs().max()) for g in found))


def leak_in(examination: Examination, kind: torch.dtype) -> float | None:
    """The leak in half precision, or `None` if the model can't run in it here."""
    try:
        return leak_by_change(examination, copy.deepcopy(examination.model).to(kind))[0]
    except Exception:
        return None


def scaled_up(model: nn.Module) -> nn.Module:
    """A copy whose matrices, but not its embeddings, are `LARGE` times as large."""
    model = copy.deepcopy(model)
    embeddings = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and id(parameter) not in embeddings:
                parameter.mul_(LARGE)
    return model


def leaking_places(examination: Examination, model: nn.Module | None = None) -> tuple[str, ...]:
    """The attentions of the decoder whose weights lie on later keys."""
    inputs = examination.inputs()
    with trace_attention(model or examination.exact) as trace:
        examination.logits(model or examination.exact, *inputs)
    length = inputs[-1].size(1)
    leaking = [call for call in trace.calls if call.weights.shape[-2:] == (length, length) and above(call.weights) > 0]
    found = [call.place for call in leaking] + [masking.line for call in leaking for masking in call.masks]
    return places(*found[:3], examination.patient.call or examination.model)


def above(weights: Tensor) -> float:
    """The largest weight on a later key."""
    return float(weights.triu(1).nan_to_num(nan=1.0).max())
