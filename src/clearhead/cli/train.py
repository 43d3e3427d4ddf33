"""`clearhead train`: from a recipe to a trained run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from clearhead.recipe import Recipe


def train(
    recipe: Annotated[
        Path, typer.Argument(help="A recipe (TOML), or a run folder to --resume.", metavar="RECIPE", show_default=False)
    ],
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key of the recipe: section.key=value. Repeatable.", metavar="KEY=VALUE"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a stopped run was last saved.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete the run that the run folder holds, and begin anew.")
    ] = False,
) -> None:
    """Train a Transformer from a recipe; writes a run folder that has all a model needs.

    From pairs, or from texts: a GPT or a LLaMA learns what comes next, a BERT to fill gaps (model.family). With
    model.start_from a run begins with the weights of another one, trained or imported.

    The folder is run.dir, by default runs/ and the recipe's name. Paths are relative to the working directory.
    Ctrl-C saves first: the same command with --resume goes on as if nothing had happened.

    \b
    Examples:
      clearhead train recipes/multi30k-en-de.toml --set data.root=data/multi30k
      clearhead train my.toml --set training.max_minutes=20 --set run.dir=runs/short
      clearhead train recipes/gpt.toml --set 'data.train={text = "books/*.txt"}'
      clearhead train my.toml --set model.start_from=runs/opus-mt-en-de --set run.dir=runs/mine
      clearhead train my.toml --resume
      clearhead train runs/short --resume --set training.max_minutes=60
    """
    from clearhead.cli.next_steps import how_to_use
    from clearhead.errors import ConfigError

    if resume and overwrite:
        raise ConfigError("--resume goes on with a run and --overwrite deletes it; give one of them")
    resolved = _resolve(recipe, set or [], resume=resume)

    from clearhead.training.run import train as train_recipe  # imports torch: a mistake above shows at once

    outcome = train_recipe(resolved, resume=resume, overwrite=overwrite)
    if outcome.stopped_by is not None:
        raise typer.Exit(128 + outcome.stopped_by)
    print(f"To use it: {how_to_use(outcome.folder)}")


def _resolve(path: Path, overrides: list[str], *, resume: bool) -> Recipe:
    """The recipe of a file, or of a run folder that is to be resumed."""
    from clearhead.errors import ConfigError
    from clearhead.recipe import make_recipe, read_recipe
    from clearhead.run_folder import RunFolder
    from clearhead.toml import apply_override

    if not path.is_dir():
        return read_recipe(path, overrides)
    folder = RunFolder(path)
    if not resume:
        raise ConfigError(f"{path} is a folder, not a recipe; to go on with a run in it, add --resume")
    tables = folder.read_recipe_tables()
    for override in overrides:
        apply_override(tables, override)
    tables["run"] = {**tables.get("run", {}), "dir": str(path)}
    return make_recipe(tables, origin=str(folder.recipe))
