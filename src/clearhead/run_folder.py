"""The run folder: all a trained model needs, and all a stopped training needs to go on. Nothing in it is a pickle.

```
recipe.toml          the resolved recipe: every key written out
config.json          the model's shape
tokenizer.json       the tokenizer; or source.json and target.json, one for each side
model.safetensors    the weights to use: the best so far; at the end the best or the averaged ones
metrics.jsonl        one JSON object a line: losses, rates and speed while training, and validations
summary.json         what the training came to; written at its end
checkpoints/         the training's whole state, and the weights of the last validations
data/                the encoded training pairs (a cache: may be deleted)
control.json         of a language model, and of one begun with imported weights: the tokenizer's control tokens
imported.json        instead of a recipe: where an imported model comes from, and its control tokens
```
An imported model's tokenizer keeps its own files: tokenizer.json; or source.spm, target.spm and vocab.json.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, RunError
from clearhead.recipe import Recipe, make_recipe


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Where a model that wasn't trained here comes from."""

    family: str
    """What `transformers` calls its kind: gpt2, bert, llama, marian."""
    source: str
    """The name of the file or folder it was read from."""
    control: dict[str, Any]
    """Its control tokens (`text.control.Control`)."""


FOREIGN_TOKENIZER_FILES = (
    "tokenizer.json", "source.spm", "target.spm", "vocab.json", "tokenizer.model",
    "tokenizer_config.json", "special_tokens_map.json",
)  # fmt: skip
"""Files of a tokenizer that an imported model brings along under their own names."""


class RunFolder:
    """The paths of a run, and reading and writing its small files. Raises `RunError` naming the file."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.recipe = self.path / "recipe.toml"
        self.config = self.path / "config.json"
        self.shared_tokenizer = self.path / "tokenizer.json"
        self.source_tokenizer = self.path / "source.json"
        self.target_tokenizer = self.path / "target.json"
        self.model = self.path / "model.safetensors"
        self.metrics = self.path / "metrics.jsonl"
        self.summary = self.path / "summary.json"
        self.imported = self.path / "imported.json"
        self.control = self.path / "control.json"
        self.checkpoints = self.path / "checkpoints"
        self.data = self.path / "data"

    def __str__(self) -> str:
        return str(self.path)

    def tokenizer_paths(self) -> tuple[Path, Path]:
        """The files of the source's and the target's tokenizer: one and the same when shared."""
        if (self.path / "source.spm").exists():
            return self.path / "source.spm", self.path / "target.spm"
        if self.shared_tokenizer.exists():
            return self.shared_tokenizer, self.shared_tokenizer
        return self.source_tokenizer, self.target_tokenizer

    def holds_run(self) -> bool:
        """Whether anything trained lies here; a training that never got to its first checkpoint left nothing."""
        return self.model.exists() or any(self.checkpoints.glob("*.safetensors"))

    def require(self) -> RunFolder:
        """Itself, if a training was begun here; otherwise a `RunError` that says what is missing."""
        if not self.path.is_dir():
            raise RunError(f"{self.path}: no such run folder")
        if not self.recipe.exists() and not self.imported.exists():
            raise RunError(
                f"{self.path}: no run folder: it has no recipe.toml, which `clearhead train` writes, "
                "nor an imported.json, which `clearhead import` does"
            )
        return self

    def read_recipe(self) -> Recipe:
        """The resolved recipe, pointing to this folder wherever it was trained."""
        tables = self.read_recipe_tables()
        tables.setdefault("run", {})["dir"] = str(self.path)
        return make_recipe(tables, origin=str(self.recipe))

    def read_recipe_tables(self) -> dict[str, Any]:
        """The resolved recipe as plain tables, to put overrides on."""
        if not self.recipe.exists() and self.require():
            raise RunError(f"{self.path}: an imported model has no recipe")
        try:
            return tomllib.loads(self.require().recipe.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise RunError(f"{self.recipe}: can't be read: {error}") from None

    def write_recipe(self, recipe: Recipe) -> None:
        """Write the resolved recipe."""
        write_text_atomically(self.recipe, f"# The resolved recipe of this run.\n\n{recipe.to_toml()}")

    def read_config(self) -> ModelConfig:
        """The model's shape."""
        try:
            return ModelConfig.from_dict(self._read_json(self.config))
        except ConfigError as error:
            raise RunError(f"{self.config}: {error}") from None

    def write_config(self, config: ModelConfig) -> None:
        """Write the model's shape."""
        write_text_atomically(self.config, json.dumps(config.to_dict(), indent=2) + "\n")

    def read_imported(self) -> Imported:
        """Where an imported model comes from."""
        fields = self._read_json(self.imported)
        try:
            return Imported(**fields)
        except TypeError as error:
            raise RunError(f"{self.imported}: {error}") from None

    def write_imported(self, imported: Imported) -> None:
        """Write where an imported model comes from."""
        write_text_atomically(self.imported, json.dumps(dataclasses.asdict(imported), indent=2) + "\n")

    def read_control(self) -> dict[str, Any] | None:
        """The control tokens (`text.control.Control`) of a tokenizer that has its own; `None` of one for pairs, whose
        ids are 0 to 3."""
        if self.control.exists():
            return self._read_json(self.control)
        return self.read_imported().control if self.imported.exists() else None

    def write_control(self, control: dict[str, Any]) -> None:
        """Write the control tokens of the tokenizer."""
        write_text_atomically(self.control, json.dumps(control, indent=2) + "\n")

    def read_summary(self) -> dict[str, Any] | None:
        """What the training came to; `None` before its end."""
        return self._read_json(self.summary) if self.summary.exists() else None

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write what the training came to."""
        write_text_atomically(self.summary, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """The records of `metrics.jsonl`; a last line that was cut short is left out, and whatever is no record."""
        records = []
        text = self.metrics.read_text(encoding="utf-8", errors="replace") if self.metrics.exists() else ""
        for line in text.split("\n"):
            with contextlib.suppress(ValueError, RecursionError):
                if isinstance(record := json.loads(line), dict):
                    records.append(record)
        return records

    def remove_leftovers(self) -> None:
        """Delete the temporary files of a process that was killed while it wrote."""
        for directory in (self.path, self.checkpoints):
            for pattern in ("*.tmp", ".tmp??????"):  # `write_atomically`'s, and the safetensors library's
                for leftover in directory.glob(pattern):
                    leftover.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training here meanwhile; the lock goes with the process, however it ends.

        Raises `RunError` if another one is at it. Where the system has no such locks, nothing is locked.
        """
        try:
            import fcntl
        except ImportError:  # Windows
            yield
            return
        directory = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(directory)
            raise RunError(
                f"{self.path}: another process is training here; end it, or choose another run.dir"
            ) from None
        except OSError:  # some network file systems know no locks
            pass
        try:
            yield
        finally:
            os.close(directory)

    def clear(self) -> None:
        """Delete a run, and only its own files. The recipe goes last, so that a clearing cut short is still a run."""
        for folder in (self.checkpoints, self.data):
            shutil.rmtree(folder, ignore_errors=True)
        brought = self.imported.exists() or self.control.exists()
        foreign = [self.path / name for name in FOREIGN_TOKENIZER_FILES] if brought else []
        tokenizers = (self.shared_tokenizer, self.source_tokenizer, self.target_tokenizer, *foreign)
        for file in (
            *tokenizers,
            self.metrics,
            self.summary,
            self.model,
            self.config,
            self.imported,
            self.control,
            self.recipe,
        ):
            file.unlink(missing_ok=True)

    def _read_json(self, path: Path) -> dict[str, Any]:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{path}: missing; the training of this run never got that far") from None
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{path}: can't be read: {error}") from None
        if not isinstance(content, dict):
            raise RunError(f"{path}: expected a JSON object")
        return content


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make a temporary file beside `path`, then put it in place in one step.

    The file is synced before, its directory after the renaming: whatever happens, `path` is the old file or the new
    one, whole. Raises what `write` raises, and leaves no temporary file then.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError, AttributeError):  # Windows can't open a directory
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a small UTF-8 file in one step."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8", newline="\n")

    write_atomically(path, write)
