"""Padding, neighbours, and what ran before: none of them may change a sentence's answer. And sentences of nothing."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clearhead.doctor.attention_trace import trace_attention
from clearhead.doctor.examination import Examination, difference, seeded, without_dropout
from clearhead.doctor.finding import Finding, fault, fine, not_measured, warning
from clearhead.doctor.places import places

PADDING_CAUSES = (
    "the padding mask is missing, in the encoder's self-attention or (the one mostly forgotten) in cross-attention",
    "padding is hidden from some layers only, or pooled over",
    "a normalisation or a mean runs over positions, padding among them",
)


def check_padding(examination: Examination) -> Finding:
    """A sentence alone, and padded to three times its length."""
    changes = {"right": padding_change(examination, left=False)}
    if examination.patient.kind == "encoder-decoder":
        changes["right, the target"] = target_padding_change(examination)
    if examination.patient.left_padding:
        changes["left"] = padding_change(examination, left=True)
    measured = "padded to three times its length a sentence's logits move by " + ", ".join(
        f"{change:.1e} ({side})" for side, change in changes.items()
    )
    if max(changes.values()) <= examination.tolerance:
        return fine(measured)
    causes: Sequence[str] = PADDING_CAUSES
    if changes["right"] <= examination.tolerance < changes.get("left", 0.0):
        causes = ("positions count the padding on the left: make position ids of the mask, (mask.cumsum(-1) - 1)",)
    return fault(measured, causes, padding_places(examination))


def padding_change(examination: Examination, *, left: bool) -> float:
    """How far padding the (source) ids moves the logits of real positions, relative to their size."""
    ids, *rest = examination.inputs(batch=1)
    real = ids.size(1)
    padding = torch.full((1, 2 * real), examination.patient.pad)
    padded = torch.cat([padding, ids] if left else [ids, padding], 1)
    alone = examination.look(examination.exact, ids, *rest)
    logits = examination.look(examination.exact, padded, *rest)
    if examination.patient.kind != "encoder-decoder":
        logits = logits[:, -real:] if left else logits[:, :real]
    return difference(logits, alone)


def target_padding_change(examination: Examination) -> float:
    """The same for padding behind the decoder's input."""
    source, ids = examination.inputs(batch=1)
    padded = torch.cat([ids, torch.full((1, 2 * ids.size(1)), examination.patient.pad)], 1)
    alone = examination.look(examination.exact, source, ids)
    return difference(examination.look(examination.exact, source, padded)[:, : ids.size(1)], alone)


def padding_places(examination: Examination) -> tuple[str, ...]:
    """The attentions whose weights lie on padding."""
    inputs = examination.padded_inputs()
    with trace_attention(examination.exact) as trace:
        examination.logits(examination.exact, *inputs)
    found = []
    for call in trace.calls:
        weights = call.by_row(len(inputs[0]))
        if weights is not None and weights.size(-1) == inputs[0].size(1) and float(weights[0, ..., -5:].max()) > 0:
            found.append(call.place)
    return places(*found[:3], examination.patient.call or examination.model)


def check_batch(examination: Examination) -> Finding:
    """A sentence alone, beside others of its length, and in another order: in evaluation and in training mode."""
    inputs = examination.inputs(batch=5)
    changes = {"evaluation": batch_change(examination, examination.exact, inputs)}
    model = copy.deepcopy(examination.exact)
    with without_dropout(model):
        twice = [look(examination, model, inputs, seed=seed) for seed in (1, 2)]
        if difference(*twice) <= examination.tolerance:
            changes["training without dropout"] = batch_change(examination, model, inputs)
    measured = "beside others and in another order a sentence's logits move by " + ", ".join(
        f"{change:.1e} (in {mode})" for mode, change in changes.items()
    )
    if max(changes.values()) <= examination.tolerance:
        return fine(measured)
    normalised = [m for m in examination.exact.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    causes: Sequence[str] = (
        "batch normalisation: its statistics mix the sentences of a batch; a Transformer takes layer normalisation",
        "batch and positions are confused: batch_first differs between modules, or a view mixes the axes",
        "positions are added along the batch's axis",
    )
    return fault(measured, causes if normalised else causes[1:], places(*normalised[:2], examination.model))


def batch_change(examination: Examination, model: nn.Module, inputs: list[Tensor]) -> float:
    """The largest change of a row's logits alone, or with the rows turned around."""
    together = look(examination, model, inputs)
    alone = torch.cat(
        [look(examination, model, [ids[row : row + 1] for ids in inputs]) for row in range(len(together))]
    )
    turned = look(examination, model, [ids.flip(0) for ids in inputs]).flip(0)
    return max(difference(alone, together), difference(turned, together))


def look(examination: Examination, model: nn.Module, inputs: list[Tensor], seed: int = 0) -> Tensor:
    """Logits with the same random numbers each time."""
    with seeded(seed):
        return examination.look(model, *inputs)


def check_evaluation(examination: Examination) -> Finding:
    """The same batch twice in evaluation mode, and again after another batch and a training step in between."""
    model, inputs = copy.deepcopy(examination.exact).eval(), examination.inputs()
    first = look(examination, model, inputs, seed=1)
    again = difference(look(examination, model, inputs, seed=2), first)
    measured = f"two runs in evaluation mode differ by {again:.1e}"
    if again > examination.tolerance:
        return fault(
            measured,
            (
                "dropout in evaluation: F.dropout(x, p) needs training=self.training, and scaled_dot_product_attention "
                "knows nothing of eval(): dropout_p=self.p if self.training else 0.0",
                "a module made in forward is always in training mode",
            ),
            places(*random_lines(examination, model, inputs), examination.model),
        )
    look(examination, model, [ids.flip(1)[:, :-1] for ids in inputs])
    later = difference(look(examination, model, inputs), first)
    measured += f", after another batch by {later:.1e}"
    if later > examination.tolerance:
        return fault(
            measured,
            (
                "something of the last call stays on a module: a cache of keys and values, a mask or positions of "
                "another length. Hand it in as an argument, or clear it",
            ),
            places(examination.model),
        )
    return fine(measured)


def random_lines(examination: Examination, model: nn.Module, inputs: list[Tensor]) -> list[str]:
    """The lines that draw random numbers."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from clearhead.doctor.places import calling_line

    found: list[str] = []

    class Watcher(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if any(word in func._schema.name for word in ("dropout", "bernoulli", "rand", "flash_attention")):
                found.append(calling_line())
            return func(*args, **(kwargs or {}))

    with Watcher():
        examination.look(model, *inputs)
    return list(dict.fromkeys(found))[:3]


def check_empty_rows(examination: Examination) -> Finding:
    """A batch in which one sentence is nothing but padding: outputs, and gradients of the others' loss."""
    model = copy.deepcopy(examination.exact).eval()
    inputs = examination.inputs()
    inputs[0][1] = examination.patient.pad
    try:
        logits = examination.logits(model, *inputs)
    except Exception as error:
        return warning(f"a sentence of padding alone raises {type(error).__name__}: {error}", ("it isn't foreseen",))
    finite = bool(logits.isfinite().all())
    logits[[0, 2]].square().mean().backward()  # type: ignore[no-untyped-call]
    poisoned = [n for n, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    measured = (
        f"with one sentence of padding alone the outputs are {'finite' if finite else 'not finite'}, and "
        f"{len(poisoned)} of {len(list(model.parameters()))} gradients are not"
    )
    if finite and not poisoned:
        others = [0, 2]
        alone = examination.look(model, *(ids[others] for ids in inputs))
        change = difference(logits.detach()[others], alone)
        return fine(f"{measured}; the other sentences move by {change:.1e}")
    return fault(
        measured,
        (
            "a row of scores that are all -inf has no softmax (0/0): give such rows anything finite and zero their "
            "weights, or let every sentence keep one visible token",
            "the mask is upside down, so that a full sentence sees nothing",
        ),
        nan_places(examination, model, inputs),
    )


def nan_places(examination: Examination, model: nn.Module, inputs: list[Tensor]) -> tuple[str, ...]:
    """The first attention with weights that are no numbers."""
    with trace_attention(model) as trace:
        examination.logits(model, *inputs)
    found = [call.place for call in trace.calls if not call.weights.isfinite().all()]
    return places(*found[:2], examination.patient.call or examination.model)


def check_precision(examination: Examination) -> Finding:
    """Outputs in float16 and bfloat16 beside float32."""
    inputs = examination.inputs()
    model = copy.deepcopy(examination.model).float()
    expected = examination.look(model, *inputs).softmax(-1)
    if not expected.isfinite().all():
        return not_measured("the outputs are not finite in float32 either")
    parts = []
    for kind in (torch.float16, torch.bfloat16):
        name = str(kind).removeprefix("torch.")
        try:
            found = examination.look(copy.deepcopy(model).to(kind), *inputs)
        except Exception as error:
            if "overflow" in str(error):
                return fault(
                    f"in {name}: {error}",
                    (f"a mask value of -1e9 is beyond {name}: fill in -inf, or torch.finfo(scores.dtype).min",),
                    raising_places(error, examination),
                )
            parts.append(f"{name} can't run here ({type(error).__name__})")
            continue
        drift = float((found.float().softmax(-1) - expected).abs().max()) if found.isfinite().all() else math.inf
        parts.append(f"probabilities move by {drift:.1e} in {name}")
        if math.isinf(drift):
            return fault(
                f"in {name} the outputs are not finite",
                ("scores, embeddings or activations overflow: scale before the product, normalise in float32",),
                places(examination.model),
            )
        if drift > 0.1:
            return warning("; ".join(parts), ("activations too large for few digits: normalise in float32",))
    return fine("; ".join(parts))


def raising_places(error: Exception, examination: Examination) -> tuple[str, ...]:
    """The innermost line of the model that an error came from."""
    import traceback

    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/site-packages/" not in f.filename]
    from clearhead.doctor.places import shorten

    found = [f"{shorten(f.filename)}:{f.lineno}: {f.line}" for f in frames[-1:]]
    return places(*found, examination.model)
