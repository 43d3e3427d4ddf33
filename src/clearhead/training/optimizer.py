"""Adam (section 5.3) and AdamW, and their state as named tensors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clearhead.recipe import TrainingSection


def make_optimizer(model: nn.Module, options: TrainingSection) -> torch.optim.Optimizer:
    """Torch's fused Adam or AdamW over every parameter, its moments in place already.

    Allocating them now rather than in the first update makes running out of memory show at the start.
    """
    parameters = list(model.parameters())
    kind = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.Adam
    optimizer = kind(
        parameters,
        lr=0.0,
        betas=options.betas,
        eps=options.epsilon,
        weight_decay=options.weight_decay,
        fused=all(p.device.type in ("cpu", "cuda") for p in parameters),
    )
    start = {f"{name}.{key}": zero for name, p in model.named_parameters() for key, zero in _fresh_state(p).items()}
    load_optimizer_tensors(optimizer, model, start)
    return optimizer


def _fresh_state(parameter: Tensor) -> dict[str, Tensor]:
    moments = {key: torch.zeros_like(parameter) for key in ("exp_avg", "exp_avg_sq")}
    return {"step": torch.tensor(0.0), **moments}


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The state by parameter: `<name>.step`, `<name>.exp_avg`, `<name>.exp_avg_sq`."""
    return {f"{name}.{key}": value for name, p in model.named_parameters() for key, value in optimizer.state[p].items()}


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`. A missing tensor is a `KeyError`."""
    keys = ("step", "exp_avg", "exp_avg_sq")
    state = {
        index: {key: tensors[f"{name}.{key}"] for key in keys}
        for index, (name, _) in enumerate(model.named_parameters())
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
