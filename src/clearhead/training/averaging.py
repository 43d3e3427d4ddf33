"""Which weights a finished run hands over: the best of its validations, or the average of the last ones if better.

Averaging the weights of the last few checkpoints is what the paper does (section 6.1: the last 5 for base, the last 20
for big): their noise cancels. Whether it helps is measured, not believed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clearhead.models.transformer import copy_weights, load_weights
from clearhead.training.checkpoints import average_weights, save_weights_atomically
from clearhead.training.metrics_log import MetricsLog
from clearhead.training.trainer import Trainer
from clearhead.training.validation import is_better


def choose_weights(trainer: Trainer, log: MetricsLog, reason: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Validate the last weights and the averaged ones, put the better of best and averaged into `model.safetensors`
    and the model, and return the summary of the run.

    Nothing here is part of a checkpoint, so a run that is resumed with a higher limit knows nothing of it.
    Raises `OSError` when the disk is full, and `StopRequested`.
    """
    state, options, folder, model = trainer.state, trainer.options, trainer.folder, trainer.model
    if state.validated_at != state.update:
        trainer.validate(log)
    value, weights = state.best_value, f"the best weights, of update {state.best_update:,}"

    best_path = trainer.checkpoints.weights_path(state.best_update)
    average_paths = [path for update in state.snapshots if (path := trainer.checkpoints.weights_path(update)).exists()]
    averaged = average_weights(average_paths) if len(average_paths) > 1 else {}
    if value is not None and best_path.exists():
        load_weights(model, best_path)
    else:
        value, weights = None, f"the last weights, of update {state.update:,}"
        say("no validation gave a finite value, or its weights are lost: keeping the last weights")
    if averaged:
        own = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        copy_weights(model, averaged, origin="the average")
        found = trainer.objective.validate(model, trainer.stop.check)
        log.write({"event": "averaged", "update": state.update, "of": len(average_paths), **found.record()})
        say(f"average of the last {len(average_paths)} validations: {options.metric} {found.value:.4g}, best {value}")
        if is_better(options.metric, found.value, value):
            value, weights = found.value, f"the average of the last {len(average_paths)} validations"
        else:
            copy_weights(model, own, origin="the best weights")
    save_weights_atomically(model, folder.model)
    return {
        "update": state.update,
        "epoch": state.epoch + 1,
        "reason": reason,
        "weights": weights,
        "metric": options.metric,
        "value": value,
        "best_update": state.best_update,
        "seconds": round(state.seconds, 1),
        "target_tokens": state.target_tokens,
        "tokens_per_second": round(state.target_tokens / max(state.update_seconds, 1e-9)),
        "skipped": state.skipped,
        "parameters": sum(p.numel() for p in model.parameters()),
    }
