"""Before any training: the first loss, the embeddings' size, tied weights, and parts that can't learn."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor.checks.positions import first_tensor
from clearhead.doctor.examination import Examination, seeded, stacks_of_layers
from clearhead.doctor.finding import Finding, fault, fine, not_measured
from clearhead.doctor.patient import Patient
from clearhead.doctor.places import places

NOT_FRESH = "needs a function that builds an untrained model"


def check_initial_loss(examination: Examination) -> Finding:
    """The untrained model's loss on random labels, beside the logarithm of the vocabulary."""
    if not examination.patient.fresh_is_given:
        return not_measured(NOT_FRESH)
    model = examination.fresh().eval()
    logits = examination.look(model, *examination.inputs(batch=8, source=17, target=13))
    with seeded(17):
        labels = torch.randint(logits.size(-1), logits.shape[:2])
    loss = float(F.cross_entropy(logits.flatten(0, 1).double(), labels.flatten()))
    even = math.log(examination.patient.outputs)
    measured = f"untrained loss {loss:.2f}, ln(vocabulary) = {even:.2f}"
    if loss <= even + 1.0:
        return fine(measured)
    return fault(
        measured,
        (
            "embeddings drawn from N(0, 1) (nn.Embedding's default) and tied to the output projection: logits of a "
            "deviation of sqrt(d_model). Draw them from N(0, 1/d_model) and multiply by sqrt(d_model) on the way in",
            "a residual stream that grows with depth, and no last normalisation",
        ),
        places(*embedding_places(examination), examination.model),
    )


def embedding_places(examination: Examination) -> Sequence[nn.Module]:
    """Embeddings of the whole vocabulary that are not torch's own class, for a line to look at."""
    return [m for m in examination.model.modules() if isinstance(m, nn.Embedding) and type(m) is not nn.Embedding][:1]


def check_embedding_scale(examination: Examination) -> Finding:
    """How much the first layer's input varies by token, and how much by position."""
    if not examination.patient.fresh_is_given:
        return not_measured(NOT_FRESH)
    model = examination.fresh().eval()
    parts = []
    for path, entered in first_inputs(examination, model).items():
        by_token, by_position = spread_by_token_and_position(entered)
        if by_position < 1e-6 * by_token:
            continue  # positions come in later, or not at all: another check's business
        ratio = by_token / by_position
        parts.append(f"{path}: tokens {by_token:.2g}, positions {by_position:.2g}")
        look_at = places(*embedding_places(examination), examination.model)
        measured = f"the first layer's input deviates by token and by position: {parts[-1]}, ratio {ratio:.2g}"
        if ratio < 0.15:
            causes: Sequence[str] = (
                "embeddings are not multiplied by sqrt(d_model) (section 3.4) but start with small weights, as tied "
                "ones have to: positions drown the tokens",
            )
            return fault(measured, causes, look_at)
        if ratio > 20:
            causes = (
                "embeddings of deviation 1 are multiplied by sqrt(d_model), or twice: tokens drown the positions",
            )
            return fault(measured, causes, look_at)
    if not parts:
        return not_measured("no list of layers with positions in its input was found")
    return fine(f"the first layer's input deviates by token and by position: {'; '.join(parts)}")


def first_inputs(examination: Examination, model: nn.Module) -> dict[str, Tensor]:
    """What enters each stack, as `(tokens, positions, m)`, when every row repeats one token."""
    entered: dict[str, Tensor] = {}
    handles = []
    for path, layers in stacks_of_layers(model).items():

        def note(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], path: str = path) -> None:
            found = first_tensor(args, kwargs)
            if found is not None and found.dim() == 3:
                entered.setdefault(path, found.detach())

        handles.append(layers[0].register_forward_pre_hook(note, with_kwargs=True))
    rows, length = min(13, len(examination.ordinary)), 10
    same = examination.ordinary[:rows, None].expand(rows, length).clone()
    try:
        examination.look(model, *([same, same] if examination.patient.kind == "encoder-decoder" else [same]))
    finally:
        for handle in handles:
            handle.remove()
    found = {path: x if x.shape[:2] == (rows, length) else x.transpose(0, 1) for path, x in entered.items()}
    return {path: x for path, x in found.items() if x.shape[:2] == (rows, length)}


def spread_by_token_and_position(x: Tensor) -> tuple[float, float]:
    """The deviations `(tokens, positions, m)` has by token at one position, and by position of one token."""
    x = x.double()
    return float(x.var(0).mean().sqrt()), float(x.var(1).mean().sqrt())


def check_tied_weights(examination: Examination) -> Finding:
    """Are matrices that look tied one tensor?"""
    model = examination.fresh() if examination.patient.fresh_is_given else examination.model
    shape = (examination.patient.outputs,)
    matrices = [
        (n, p) for n, p in model.named_parameters(remove_duplicate=False) if p.dim() == 2 and p.shape[:1] == shape
    ]
    pairs = [(a, b) for i, a in enumerate(matrices) for b in matrices[i + 1 :]]
    for (name, one), (other_name, other) in pairs:
        if one is not other and one.shape == other.shape and torch.equal(one, other) and float(one.detach().std()) > 0:
            storage = one.data_ptr() == other.data_ptr()
            return fault(
                f"{name} and {other_name} hold the same numbers but are "
                f"{'two parameters over one memory' if storage else 'two tensors'}: they part in training"
                + (", or when the model is copied, moved or saved" if storage else ""),
                ("tie by `projection.weight = embedding.weight`: no clone, no nn.Parameter(…), no copy of .data",),
                places(type(model).__init__, model),
            )
    shared = [f"{a} = {b}" for (a, one), (b, other) in pairs if one is other]
    if examination.patient.tied and not shared:
        return fault("no matrix is shared though weights are to be tied", ("they were never tied",), places(model))
    if not shared:
        return fine("no two matrices are equal: nothing is tied")
    copied = dict(copy.deepcopy(model).double().named_parameters(remove_duplicate=False))
    for pair in shared:
        name, other_name = pair.split(" = ")
        if copied[name] is not copied[other_name]:
            return fault(f"{pair} no more after copying the model", ("tied by a hook or property",), places(model))
    return fine(f"one tensor: {'; '.join(shared)}")


def check_parts(examination: Examination) -> Finding:
    """Modules that the model doesn't know of, and weights that no gradient reaches or the optimizer lacks."""
    patient = examination.patient
    model = examination.fresh() if patient.fresh_is_given else copy.deepcopy(examination.model)
    hidden = hidden_modules(model)
    if hidden:
        causes: Sequence[str] = ("layers in a plain list or dict are not trained, moved or saved: use nn.ModuleList",)
        names = f"{hidden[0][0]} holds {hidden[0][1]} modules"
        return fault(f"{names} that the model doesn't know of", causes, places(type(model).__init__, model))
    model.requires_grad_(True).eval()
    with torch.no_grad(), seeded(23):
        for parameter in model.parameters():  # some start at zero, and would hide what lies behind them
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    examination.logits(model, *examination.inputs()).square().mean().backward()  # type: ignore[no-untyped-call]
    dead = [n for n, p in model.named_parameters() if p.dim() > 1 and (p.grad is None or not p.grad.any())]
    total = sum(1 for p in model.parameters() if p.dim() > 1)
    measured = f"{total - len(dead)} of {total} matrices get a gradient"
    if dead:
        causes = (
            "a part is made but never used, or detached (.detach(), .data, torch.no_grad(), argmax)",
            "the same layer is called twice where two were meant",
        )
        return fault(f"{measured}; not {', '.join(dead[:4])}", causes, places(model))
    optimizer = optimizer_of(patient, model)
    if optimizer is not None:
        known = {id(p) for group in optimizer.param_groups for p in group["params"]}
        forgotten = [n for n, p in model.named_parameters() if id(p) not in known]
        if forgotten:
            causes = ("the optimizer was made before a part was added or replaced, or of one part's parameters",)
            return fault(f"the optimizer lacks {', '.join(forgotten[:4])}", causes, places(patient.optimizer))
    return fine(measured)


def optimizer_of(patient: Patient, model: nn.Module) -> torch.optim.Optimizer | None:
    """The training's optimizer; `None` if it can't be made, which the schedule's check says."""
    if patient.optimizer is None:
        return None
    try:
        made = patient.optimizer(model)
    except Exception:
        return None
    return made[0] if isinstance(made, tuple) else made


def hidden_modules(model: nn.Module) -> list[tuple[str, int]]:
    """Attributes that hold modules which are not registered, and how many."""
    known, found = set(model.modules()), []
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_"):
                continue
            items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
            strangers = [item for item in items if isinstance(item, nn.Module) and item not in known]
            if any(p.requires_grad for m in strangers for p in m.parameters()):
                found.append((f"{path}.{name}".lstrip("."), len(strangers)))
    return found
