"""Do masks hide what they are to hide, and nothing else? And are scores scaled, and the softmax taken over keys?"""

from __future__ import annotations

import math

import torch

from clearhead.doctor.attention_trace import AttentionCall, AttentionTrace, trace_attention
from clearhead.doctor.examination import SOURCE_LENGTH, Examination
from clearhead.doctor.finding import Finding, fault, fine, not_measured, warning
from clearhead.doctor.places import places

SMALL = 1e-6
WEAK = -1_000.0


def trace_padded(examination: Examination) -> AttentionTrace:
    """The attentions of a batch whose first sentence ends in five tokens of padding."""
    found = examination.notes.get("trace")
    if not isinstance(found, AttentionTrace):
        with trace_attention(examination.exact) as found:
            examination.logits(examination.exact, *examination.padded_inputs())
        examination.notes["trace"] = found
    return found


def check_masks(examination: Examination) -> Finding:
    """The weights of every attention on keys that are to be hidden, and on those that are not."""
    calls = trace_padded(examination).calls
    if not calls:
        return not_measured("no softmax over products of queries and keys was seen")
    for call in calls:
        if finding := wrong_kind(call) or upside_down(examination, call):
            return finding
    weak = [m for call in calls for m in call.masks if m.how != "multiplied" and WEAK < m.least < -1]
    measured = f"{len(calls)} attentions: none of them upside down, or of 0/1 numbers"
    if weak:
        causes = ("a mask value as small as that is outgrown by large scores: fill in -inf",)
        return warning(f"{measured}; masked scores get {weak[0].least:g}", causes, (weak[0].line,))
    return fine(measured)


WRONG_KINDS = {
    "added": "a mask of zeros and ones is added to the scores: it hides nothing, it raises a score by 1",
    "multiplied": "scores are multiplied by a mask of zeros and ones: what is 0 still has a weight of e^0",
}


def wrong_kind(call: AttentionCall) -> Finding | None:
    """Zeros and ones added to scores, or scores multiplied by them; or an ordinary number filled in."""
    for masking in call.masks:
        look_at = places(masking.line, call.place)
        if masking.zero_or_one and masking.how in WRONG_KINDS:
            causes: tuple[str, ...] = (
                "a tokenizer's attention_mask (1 = real) is given where a boolean or an additive mask is due: "
                "mask.bool(), or masked_fill(mask == 0, -inf)",
                "a float mask is added to the scores by scaled_dot_product_attention and nn.MultiheadAttention",
            )
            return fault(WRONG_KINDS[masking.how], causes, look_at)
        if masking.how == "filled in" and -1 < masking.greatest < 1 and masking.greatest != 0:
            causes = ("1e-9 is written where -1e9 is meant; fill in -inf",)
            return fault(f"masked scores are set to {masking.greatest:g}, an ordinary score", causes, look_at)
    return None


def upside_down(examination: Examination, call: AttentionCall) -> Finding | None:
    """Weight on what is to be hidden, and none on what is to be seen."""
    inputs = examination.padded_inputs()
    weights = call.by_row(len(inputs[0]))
    if weights is None or call.axis != -1:
        return None
    weights = weights.double()
    queries, keys = weights.shape[-2:]
    patient, look_at = examination.patient, places(call.place, *(m.line for m in call.masks), examination.patient.call)
    causes = (
        "True means 'may attend' in scaled_dot_product_attention, and 'ignore' in nn.MultiheadAttention and "
        "nn.Transformer (attn_mask, key_padding_mask): turn the mask around with ~",
        "masked_fill(mask, -inf) fills where the mask is True; masked_fill(mask == 0, -inf) where it is not",
        "torch.tril and torch.triu are confused",
    )
    hides_padding = patient.kind == "encoder" or (patient.kind == "encoder-decoder" and keys == SOURCE_LENGTH)
    if hides_padding and keys == inputs[0].size(1):
        hidden, shown = weights[0, ..., -5:], weights[0, ..., :-5]
        blind = not weights[1].isfinite().all() or not weights[1:].abs().sum() > 0
        if (float(hidden.nan_to_num().sum()) > SMALL and float(shown.nan_to_num().sum()) < SMALL) or blind:
            measured = "a padding mask is upside down: weights lie on padding only, and full sentences see nothing"
            return fault(measured, causes, look_at)
    if queries == keys and patient.has_decoder and (patient.kind == "decoder" or keys != SOURCE_LENGTH):
        later, earlier = weights.triu(1).nan_to_num().sum(), weights.tril(-1).nan_to_num().sum()
        if float(later) > SMALL and float(earlier) < SMALL:
            return fault("the causal mask is upside down: every token sees only later ones", causes, look_at)
    return None


def check_scores(examination: Examination) -> Finding:
    """By what the products of queries and keys are multiplied, and how even the weights of an untrained model are."""
    calls = trace_padded(examination).calls
    if not calls:
        return not_measured("no softmax over products of queries and keys was seen")
    for call in calls:
        if call.axis != -1:
            return fault(
                f"a softmax over axis {call.axis} of the scores: weights don't sum to 1 over the keys",
                ("softmax(dim=-1) is needed; without dim, or with dim=1, it runs over heads or queries",),
                places(call.place),
            )
        if finding := wrong_scale(examination, call):
            return finding
    measured = "products are divided by the root of d = " + ", ".join(str(d) for d in sorted({c.width for c in calls}))
    if examination.patient.fresh_is_given:
        entropy, saturated = evenness(examination)
        measured += f"; untrained weights have {entropy:.0%} of the greatest entropy, {saturated:.0%} are saturated"
        if saturated > 0.3:
            causes = ("first weights or embeddings are too large: the softmax starts almost one-hot and hardly learns",)
            return warning(measured, causes, places(calls[0].place))
    return fine(measured)


def wrong_scale(examination: Examination, call: AttentionCall) -> Finding | None:
    """Whether the scores' factor is not the root of the head's width, and which mistake that would be."""
    width, factor = call.width, call.factor
    if width <= 1 or math.isclose(factor, width**-0.5, rel_tol=0.02):
        return None
    of_queries, of_keys = call.deviations
    if factor == 1.0 and math.isclose(of_queries * width**0.5, of_keys, rel_tol=0.2):
        return None  # T5 scales nothing, and starts with smaller queries instead
    spread = float(call.scores[call.scores.isfinite() & (call.scores > WEAK)].std())
    heads = call.weights.size(1) if call.weights.dim() == 4 else 1
    known = {
        1.0: "scores are not scaled: their variance grows with the width of a head",
        1 / width: "scores are scaled twice (by hand, and by scaled_dot_product_attention or the projection)",
        (width * heads) ** -0.5: "scores are divided by the root of d_model, not of a head's width d_model / n_heads",
        width**0.5: "scores are multiplied by the root of d, not divided by it",
    }
    said = next((text for value, text in known.items() if math.isclose(factor, value, rel_tol=0.02)), None)
    measured = f"products of width {width} are multiplied by {factor:.4g}, not 1/sqrt({width}) = {width**-0.5:.4g}; "
    measured += f"the scores' deviation is {spread:.2g}"
    look_at = places(call.product_line, call.place)
    if said is None:
        return warning(measured, ("a scale of its own (muP, a learned temperature), or a mistake",), look_at)
    return fault(measured, (said,), look_at)


def evenness(examination: Examination) -> tuple[float, float]:
    """Of an untrained model: the weights' mean entropy over the greatest possible, and the share of rows above 0.99."""
    model = examination.fresh().eval()
    with trace_attention(model) as trace:
        examination.logits(model, *examination.inputs(source=23, target=19))
    entropies, peaks = [], []
    for call in trace.calls:
        weights = call.weights.double()
        seen = (weights > 0).sum(-1)
        entropy = -(weights * weights.clamp_min(1e-300).log()).sum(-1)
        entropies.append((entropy / seen.clamp_min(2).log())[seen > 3])
        peaks.append((weights.amax(-1) > 0.99)[seen > 3])
    if not entropies or not torch.cat(entropies).numel():
        return 1.0, 0.0
    return float(torch.cat(entropies).mean()), float(torch.cat(peaks).double().mean())
