"""Which processor to compute on."""

from __future__ import annotations

import torch

from clearhead.errors import ConfigError


def resolve_device(name: str) -> torch.device:
    """The device of a name: `auto` is a CUDA GPU if there is one, otherwise the CPU.

    Raises `ConfigError` for an unknown name, or a GPU that this machine or this build of torch doesn't have.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {name!r} can't be used ({reason}); use auto, cpu or cuda") from None
    return device
