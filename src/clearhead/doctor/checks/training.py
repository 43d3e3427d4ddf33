"""Does it learn? Gradients by depth, warm-up, ten examples; and the learning rate, update by update."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from clearhead.doctor.examination import Examination, stacks_of_layers
from clearhead.doctor.finding import Finding, fault, fine, not_measured, warning
from clearhead.doctor.places import places
from clearhead.doctor.training_probe import FEW_TOKENS, memorised, ten_examples, train_on, usual_loss

DEPTH_RATIO = 100.0


def check_depth(examination: Examination) -> Finding:
    """The norm of the gradient of each layer's matrices, before training."""
    if not examination.patient.fresh_is_given:
        return not_measured("needs a function that builds an untrained model")
    model = examination.fresh().double().eval().requires_grad_()
    try:
        usual_loss(examination, model, ten_examples(examination)).backward()  # type: ignore[no-untyped-call]
    except RuntimeError:
        model = examination.fresh().eval().requires_grad_()
        usual_loss(examination, model, ten_examples(examination)).backward()  # type: ignore[no-untyped-call]
    parts, worst = [], 1.0
    for path, layers in stacks_of_layers(model).items():
        norms = [
            math.sqrt(
                sum(float(p.grad.square().sum()) for p in layer.parameters() if p.grad is not None and p.dim() > 1)
            )
            for layer in layers
        ]
        if len(norms) < 3:
            continue
        parts.append(f"{path}: {norms[0]:.1e} in the first layer, {norms[-1]:.1e} in the last")
        ratio = norms[0] / norms[-1] if norms[-1] else math.inf
        worst = ratio if abs(math.log(max(ratio, 1e-300))) > abs(math.log(worst)) else worst
    if not parts:
        return not_measured("no stack of at least three layers")
    measured = "; ".join(parts)
    if 1 / DEPTH_RATIO <= worst <= DEPTH_RATIO:
        return fine(measured)
    causes: Sequence[str] = (
        "a residual connection is missing around a sublayer: x + sublayer(x)",
        "first weights of the wrong size; a normalisation is missing",
    )
    first_layers = [layers[0] for layers in stacks_of_layers(model).values()]
    what = "vanish" if worst < 1 else "explode"
    return fault(f"gradients {what} towards the first layer. {measured}", causes, places(*first_layers))


def check_warmup(examination: Examination) -> Finding:
    """A hundred steps with the training's own optimizer, and as many with a warm-up before the same rate."""
    patient = examination.patient
    if patient.optimizer is None or not patient.fresh_is_given:
        return not_measured("needs the training's optimizer: Patient(optimizer=…)")
    rates = learning_rates(examination, 100)
    if isinstance(rates, Exception) or not rates or max(rates) <= 0:
        return not_measured("the learning rate is not usable, see schedule")
    if rates[0] < 0.2 * max(rates):
        return fine(f"there is a warm-up: the first rate is {rates[0]:.1e}, the largest of a hundred {max(rates):.1e}")
    examples = ten_examples(examination)
    own = train_on(examination, examples, updates=100, optimizer=patient.optimizer, rates=patient.rate)
    as_given = final(own.losses)
    start = own.losses[0]
    if as_given < 0.5 * start:
        return fine(f"without warm-up the loss falls from {start:.2f} to {as_given:.2f} in a hundred updates")
    warmed = train_on(examination, examples, updates=120, warmup=100, rate=max(rates))
    with_warmup = final(warmed.losses)
    measured = f"loss on ten examples {as_given:.2f} after 100 updates at {rates[0]:.1e} without warm-up"
    measured += f", {with_warmup:.2f} with one"
    if with_warmup < 0.6 * as_given:
        causes: Sequence[str] = (
            "post-norm, as published, needs a warm-up at this depth (Xiong et al., 2020): let the rate rise over some "
            "hundreds to thousands of updates, or put the normalisation before the sublayer",
        )
        return fault(measured, causes, places(patient.optimizer, *[s[0] for s in stacks_of_layers(own.model).values()]))
    return fine(measured)


def final(losses: list[float]) -> float:
    """The mean of the last ten; infinite when it broke off."""
    last = losses[-10:]
    return sum(last) / len(last) if all(map(math.isfinite, last)) else math.inf


def check_overfitting(examination: Examination) -> Finding:
    """Train on ten examples; ask for them with the tokens before given, and without."""
    if not examination.patient.fresh_is_given:
        return not_measured("needs a function that builds an untrained model")
    if len(examination.ordinary) < FEW_TOKENS:
        return not_measured(f"needs a vocabulary of at least {FEW_TOKENS} ordinary tokens")
    trained = memorised(examination)
    measured = (
        f"after {len(trained.losses)} updates on ten examples the loss fell from {trained.losses[0]:.2f} to "
        f"{trained.losses[-1]:.2f}; {trained.teacher_forced:.0%} of the tokens are right"
    )
    if examination.patient.has_decoder:
        measured += f", and {trained.free_running:.0%} of the sentences when it decodes by itself"
    if trained.teacher_forced < 0.9:
        causes: Sequence[str] = (
            "see the faults above: what can't memorise ten sentences can't learn a language",
            "a learning rate that doesn't fit, or parts that don't learn",
        )
        return fault(measured, causes, places(examination.patient.loss, examination.model))
    if examination.patient.has_decoder and trained.free_running < 0.5:
        causes = (
            "training and decoding disagree: the future is visible in training, labels are not shifted, or decoding "
            "begins with another token",
        )
        return fault(measured, causes, places(examination.patient.loss, examination.model))
    return fine(measured)


def learning_rates(examination: Examination, updates: int) -> list[float] | Exception:
    """The rates of the first updates, as the patient's own scheduler sets them; or what it raised."""
    patient = examination.patient
    try:
        if patient.rate is not None:
            return [float(patient.rate(update)) for update in range(1, updates + 1)]
        if patient.optimizer is None:
            return []
        weight = torch.nn.Linear(2, 2)
        made = patient.optimizer(weight)
        optimizer, scheduler = made if isinstance(made, tuple) else (made, None)
        rates = []
        for _ in range(updates):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            weight.weight.grad = torch.zeros_like(weight.weight)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
        return rates
    except Exception as error:
        return error


def check_schedule(examination: Examination) -> Finding:
    """The learning rate of every update from the first on, beside warm-up and length of the training."""
    patient = examination.patient
    if patient.rate is None and patient.optimizer is None:
        return not_measured("needs the learning rates: Patient(rate=…) or Patient(optimizer=…)")
    warmup, total = patient.warmup, patient.total_updates
    rates = learning_rates(examination, min(total or 20_000, max(2 * (warmup or 0) + 10, 200)))
    look_at = places(patient.rate or patient.optimizer)
    if isinstance(rates, Exception):
        found = f"{type(rates).__name__}: {rates}"
        return fault(f"the schedule raises {found}", ("a division by a warm-up of 0, or by total - warm-up",), look_at)
    if not all(map(math.isfinite, rates)) or min(rates) < 0:
        return fault(f"a rate is {min(rates)}", ("a division by zero or a negative remainder",), look_at)
    highest = max(rates)
    measured = f"rates of updates 1, 2, 3: {', '.join(f'{rate:.2e}' for rate in rates[:3])}; highest {highest:.2e}"
    measured += f" at update {rates.index(highest) + 1}"
    if rates[0] == 0:
        causes: Sequence[str] = ("updates are counted from 0, and the first one is wasted: take step + 1",)
        return fault(f"the first update has the rate 0. {measured}", causes, look_at)
    if warmup and total and warmup >= total:
        causes = (f"warm-up {warmup} is as long as the training of {total} updates: the rate never gets to its peak",)
        return fault(measured, causes, look_at)
    peak = rates.index(highest) + 1
    if warmup and warmup > 1 and highest > rates[0] and abs(peak - warmup) == 1:
        causes = ("the schedule is one update off: step() of the scheduler comes before the optimizer's, or twice",)
        return fault(f"the peak is not at update {warmup}, where the warm-up ends. {measured}", causes, look_at)
    if warmup and warmup > 1 and highest > rates[0] and peak > warmup + 1 and peak == len(rates):
        return warning(measured, (f"the rate still rises behind the warm-up of {warmup}",), look_at)
    return fine(measured)
