"""What to do with a run, said behind its training or its import."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.run_folder import RunFolder


def how_to_use(folder: RunFolder) -> str:
    """The command that a model of this kind is for."""
    config = folder.read_config()
    if config.architecture == "encoder-decoder":
        return f'clearhead translate {folder} "…"'
    if config.architecture == "decoder":
        return f'clearhead generate {folder} "…"'
    if config.heads in ("masked_token", "both"):
        return f'clearhead fill-mask {folder} "… [MASK] …"'
    return f'clearhead vectors {folder} "…" "…"'
