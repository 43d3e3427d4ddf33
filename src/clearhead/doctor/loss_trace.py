"""What a loss function asks of a model, read off its gradient.

For a cross-entropy the gradient by a position's logits is `w (p - q)`: `p` the model's probabilities, `q` what it was
to predict, `w` how much the position counts. Two runs with different logits give two such equations, and so `w` and
`q`, whatever the training code does with labels, masks and smoothing on its way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.doctor.examination import Examination, hooked, seeded
from clearhead.doctor.patient import Patient


@dataclass(frozen=True)
class LossTrace:
    """What was seen of one call of the loss."""

    loss: float
    weights: Tensor
    """How much each position counts: `(b, t)`; 0 if not at all."""
    wanted: Tensor
    """The distribution that each position is to predict: `(b, t, v)`; of positions that count."""
    given: Tensor | None
    """The decoder's input: `(b, t)` ids."""

    @property
    def labels(self) -> Tensor:
        """The likeliest wanted token of each position; -1 where the position doesn't count."""
        return self.wanted.argmax(-1).masked_fill(self.weights.abs() < 1e-7, -1)


def sentences(examination: Examination, lengths: tuple[int, ...] = (3, 8, 5), extra: int = 0) -> tuple[Tensor, Tensor]:
    """Sources and targets as a data set gives them, padded: source `x … EOS`, target `BOS y … EOS`.

    `extra` columns of padding more than needed. For one stack alone both are the targets. No target has a token twice,
    and no two begin alike, where the vocabulary allows.
    """
    patient = examination.patient
    lengths = tuple(min(length, len(examination.ordinary)) for length in lengths)
    longest = max(lengths)
    more = 2  # sources are longer than targets, so that what is given to the encoder has another shape
    sources = torch.full((len(lengths), longest + more + 1 + extra), patient.pad)
    targets = torch.full((len(lengths), longest + 2 + extra), patient.pad)
    content = with_different_beginnings(examination, examination.random_ids(len(lengths), longest, seed=11))
    others = examination.random_ids(len(lengths), longest + more, seed=12)
    for row, length in enumerate(lengths):
        sources[row, : length + more + 1] = torch.cat([others[row, : length + more], torch.tensor([patient.eos])])
        words = [torch.tensor([patient.bos]), content[row, :length], torch.tensor([patient.eos])]
        targets[row, : length + 2] = torch.cat(words)
    return (sources, targets) if patient.kind == "encoder-decoder" else (targets, targets)


def with_different_beginnings(examination: Examination, rows: Tensor) -> Tensor:
    """The rows, the first token of each put in its place, or changed places with if the row has it elsewhere."""
    for row, first in zip(rows, examination.ordinary.roll(-3).tolist(), strict=False):
        row[row == first] = row[0].clone()
        row[0] = first
    return rows


def trace_loss(examination: Examination, source: Tensor, target: Tensor) -> LossTrace | None:
    """Call the patient's loss and see what it asks for; `None` if no logits `(b, t, v)` of a cross-entropy are seen."""
    patient, model = examination.patient, examination.exact
    first = _observe(patient, model, source, target, noise=0.0)
    second = _observe(patient, model, source, target, noise=1.0)
    if first is None or second is None:
        return None
    (loss, logits, gradient, given), (_, other_logits, other_gradient, _) = first, second
    if float((logits.exp().sum(-1) - 1).abs().max()) < 1e-4:  # log-probabilities already: the gradient is -w q
        weights = -gradient.sum(-1)
        return LossTrace(loss, weights, -gradient / weights[..., None].clamp_min(1e-12), given)
    if float(other_gradient.sum(-1).abs().max()) > 1e-5 * float(other_gradient.abs().sum(-1).max()):
        return None  # p and q sum to 1: this is no cross-entropy, or one of other logits, such as capped ones
    p, other_p = logits.softmax(-1), other_logits.softmax(-1)
    step = p - other_p
    weights = ((gradient - other_gradient) * step).sum(-1) / step.square().sum(-1).clamp_min(1e-30)
    counts = weights.abs() > 1e-7
    wanted = p - gradient / torch.where(counts, weights, torch.ones_like(weights))[..., None]
    return LossTrace(loss, weights, wanted, given)


def _observe(
    patient: Patient, model: nn.Module, source: Tensor, target: Tensor, *, noise: float
) -> tuple[float, Tensor, Tensor, Tensor | None] | None:
    """The loss, the logits it saw, its gradient by them, and the decoder's input. `noise` moves the logits."""
    assert patient.loss is not None
    seen: list[tuple[Tensor, Tensor]] = []
    inputs: list[Tensor] = []

    def move(_: nn.Module, __: object, output: object) -> Tensor | None:
        if not isinstance(output, Tensor) or output.dim() != 3 or output.size(-1) != patient.outputs:
            return None
        with seeded(5):
            offset = (noise * torch.randn_like(output)).requires_grad_()
        moved = output + offset
        seen.append((offset, moved))
        return moved

    def note(_: nn.Module, arguments: tuple[object, ...], __: object) -> None:
        if arguments and isinstance(arguments[0], Tensor) and arguments[0].dim() == 2:
            inputs.append(arguments[0])

    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding)]
    with seeded(3), hooked(list(model.modules()), move), hooked(embeddings, note):
        loss = patient.loss(model, source, target)
    # a view of the same logits may pass several modules; the last one is what the loss saw
    for offset, logits in reversed(seen):
        (gradient,) = torch.autograd.grad(loss, offset, retain_graph=True, allow_unused=True)
        if gradient is None:
            continue
        fitting = [ids for ids in inputs if ids.shape == logits.shape[:2]]
        given = max(fitting, key=lambda ids: int(torch.isin(ids, target).sum()), default=None)
        found = (logits.detach().double(), gradient.double())
        if logits.size(0) != target.size(0) and logits.size(1) == target.size(0):  # positions first
            found = (found[0].transpose(0, 1), found[1].transpose(0, 1))
            given = next((ids.T for ids in inputs if ids.T.shape == found[0].shape[:2]), given)
        if len(found[0]) != target.size(0):
            continue
        if given is not None and given.shape != found[0].shape[:2]:
            given = None
        return float(loss.detach()), *found, given
    return None
