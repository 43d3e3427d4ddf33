"""Is the right question asked in training? First target token, shift of the labels, padding, smoothing, splitting."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from clearhead.doctor.examination import Examination, difference, seeded
from clearhead.doctor.finding import Finding, fault, fine, not_measured, warning
from clearhead.doctor.loss_trace import LossTrace, sentences, trace_loss
from clearhead.doctor.places import places

NO_LOSS = "needs the training's loss: Patient(loss=…)"


def traced(examination: Examination) -> LossTrace | str:
    """What the loss asks for on a padded batch; or why that isn't known. Worked out once."""
    if examination.patient.loss is None or examination.patient.kind == "encoder":
        return NO_LOSS if examination.patient.kind != "encoder" else "an encoder has no next token"
    found = examination.notes.get("loss")
    if not isinstance(found, LossTrace):
        seen = trace_loss(examination, *sentences(examination))
        if seen is None:
            return "no logits (batch, length, vocabulary) were seen on their way to a cross-entropy"
        examination.notes["loss"] = found = seen
    return found


def check_labels(examination: Examination) -> Finding:
    """For a target `BOS a b c EOS`: which token each position is given, and which it has to predict."""
    trace = traced(examination)
    if isinstance(trace, str):
        return not_measured(trace)
    _, target = sentences(examination)
    patient, look_at = examination.patient, places(examination.patient.loss, examination.model)
    if trace.given is None:
        return not_measured("the decoder's input was not seen: no nn.Embedding took ids of the logits' shape")
    row = 1  # the longest: nothing is padded in it
    wanted = target[row].tolist()
    given, labels = trace.given[row].tolist(), trace.labels[row].tolist()
    asked = [(token, label) for token, label in zip(given, labels, strict=True) if label >= 0]
    measured = f"for the target {wanted} the input is {given}, the labels are {labels} (-1: not counted)"
    place = {token: index for index, token in enumerate(wanted)}
    shifts = [place[label] - place[token] for token, label in asked if token in place and label in place]
    if not asked:
        return fault(f"{measured}: no position counts", ("every label is taken for padding",), look_at)
    usual = max(set(shifts), key=shifts.count) if shifts else 0
    if usual == 0:
        causes = (
            "input and labels are the same: the model learns to copy its input, and the loss falls to nothing. "
            "Input is target[:, :-1], labels are target[:, 1:]",
        )
        return fault(f"labels are not shifted: {measured}", causes, look_at)
    if usual > 1:
        causes = ("labels are shifted by hand, and by the model or the loss again (as transformers' models do)",)
        return fault(f"labels are shifted {usual} times: {measured}", causes, look_at)
    if usual < 0:
        return fault(f"labels are shifted backwards: {measured}", ("input and labels are swapped",), look_at)
    if given[0] != patient.bos:
        causes = (
            f"training begins with token {given[0]}, decoding with {patient.bos}: the first step of decoding is one "
            "that was never trained. Begin both with the same token",
        )
        return fault(f"the wrong first token: {measured}", causes, look_at)
    if patient.kind == "encoder-decoder" and wanted[1] not in labels:
        causes = ("the first target token is cut off: it is predicted behind the start token",)
        return fault(f"the first token is never predicted: {measured}", causes, look_at)
    if patient.eos not in labels:
        causes = ("the end token is never a label, so decoding never ends: append it to every target",)
        return fault(f"the end is never predicted: {measured}", causes, look_at)
    return fine(measured)


def check_loss(examination: Examination) -> Finding:
    """Does padding count? The same pairs with more padding, and as several accumulated batches."""
    trace = traced(examination)
    if isinstance(trace, str):
        return not_measured(trace)
    patient, look_at = examination.patient, places(examination.patient.loss)
    on_padding = int((trace.labels == patient.pad).sum())
    if on_padding and patient.pad != patient.eos:
        causes = ("padding is not left out: cross_entropy(…, ignore_index=pad), or only the real positions",)
        return fault(f"the loss counts {on_padding} positions whose label is padding", causes, look_at)
    more = loss_of(examination, *sentences(examination, extra=9))
    change = abs(more - trace.loss) / max(abs(trace.loss), 1e-12)
    measured = f"nine more columns of padding change the loss by {change:.1e}"
    if change > max(1e-6, examination.tolerance):
        causes = ("the sum is divided by the number of positions, padding included; divide by that of real tokens",)
        return fault(measured, causes, look_at)
    counting = trace.weights[trace.weights.abs() > 1e-7]
    if float(counting.max() - counting.min()) > 1e-3 * float(counting.abs().max()):
        causes = ("a mean over sentences of means over tokens: tokens of short sentences count for more",)
        return warning(
            f"{measured}; tokens count differently, {counting.min():.3g} to {counting.max():.3g}", causes, look_at
        )
    if patient.gradient is not None:
        apart = split_difference(examination)
        measured += f"; the gradient of three accumulated batches differs from that of one by {apart:.1e}"
        if apart > 1e-4:
            causes = (
                "means of means: each batch's loss is a mean over its own tokens, and these are averaged (or summed). "
                "Sum the losses of all batches, and divide by all their target tokens",
            )
            return fault(measured, causes, places(patient.gradient, patient.loss))
    return fine(measured)


def check_smoothing(examination: Examination) -> Finding:
    """How much of the distribution that the loss asks for lies on padding."""
    trace = traced(examination)
    if isinstance(trace, str):
        return not_measured(trace)
    patient = examination.patient
    real = (trace.labels >= 0) & (trace.labels != patient.pad)
    wanted = trace.wanted[real]
    smoothing = 1 - float(wanted.amax(-1).mean())
    if smoothing < 1e-4:
        return not_measured("labels are not smoothed")
    mass = float(wanted[:, patient.pad].mean())
    measured = f"the right token gets {1 - smoothing:.4f}, padding {max(mass, 0.0):.1e} of the probability"
    if mass > 1e-6:
        share = smoothing / (patient.outputs - 1)
        causes = (
            f"the smoothed mass is spread over the whole vocabulary (about {share:.1e} each), padding among it, as "
            "torch's label_smoothing does: the model learns to predict padding",
        )
        # Torch's own does this: with a large vocabulary it is next to nothing, and no fault of the user's.
        return (fault if mass > 1e-3 else warning)(measured, causes, places(patient.loss))
    return fine(measured)


def loss_of(examination: Examination, source: Tensor, target: Tensor) -> float:
    """The patient's loss, the same random numbers each time."""
    assert examination.patient.loss is not None
    with seeded(3), torch.no_grad():
        return float(examination.patient.loss(examination.exact, source, target))


def split_difference(examination: Examination) -> float:
    """The gradient of an update made of one batch, and of the same pairs as three batches."""
    source, target = sentences(examination)
    whole = gradient_of(examination, [(source, target)])
    split = gradient_of(examination, [(source[row : row + 1], target[row : row + 1]) for row in range(len(source))])
    return difference(split, whole)


def gradient_of(examination: Examination, batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    """All gradients in one vector."""
    assert examination.patient.gradient is not None
    model: nn.Module = copy.deepcopy(examination.exact)
    with seeded(3):
        examination.patient.gradient(model, batches)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
