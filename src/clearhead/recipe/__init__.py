"""A recipe: everything a training run depends on, in one TOML file.

`sections.py` has its sections, in the order of the file; their fields are its keys. A key that no section knows is an
error that names the nearest one. `read_recipe` reads a file and applies `--set section.key=value`; `Recipe.to_toml`
writes the resolved recipe that every run folder keeps.
"""

from clearhead.recipe.reading import make_recipe, read_recipe
from clearhead.recipe.recipe import Recipe
from clearhead.recipe.sections import (
    DEFAULT_UPDATES,
    LOWER_IS_BETTER,
    CorpusSection,
    DataSection,
    DecodingSection,
    DiagnosticsSection,
    Documents,
    Metric,
    TokenizerSection,
    TrainingSection,
)

__all__ = [
    "DEFAULT_UPDATES",
    "LOWER_IS_BETTER",
    "CorpusSection",
    "DataSection",
    "DecodingSection",
    "DiagnosticsSection",
    "Documents",
    "Metric",
    "Recipe",
    "TokenizerSection",
    "TrainingSection",
    "make_recipe",
    "read_recipe",
]
