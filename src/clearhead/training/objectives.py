"""The objective that a recipe asks for, with its data ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import torch

from clearhead.config import ModelConfig
from clearhead.recipe import Recipe
from clearhead.run_folder import RunFolder
from clearhead.training.data import prepare_data
from clearhead.training.masked_token import MaskedToken
from clearhead.training.next_token import NextToken
from clearhead.training.objective import Objective
from clearhead.training.pairs import TargetOfSource
from clearhead.training.text_data import prepare_text_data


def make_objective(recipe: Recipe, folder: RunFolder, device: torch.device, say: Callable[[str], None]) -> Objective:
    """Prepare the data in the run folder, and put together what is to be learned from them.

    Raises `ConfigError` and `DataError` for what is wrong with recipe and files.
    """
    expected = shape(recipe, folder, source_vocab=5, target_vocab=5)
    match expected.architecture:
        case "encoder-decoder":
            pairs = prepare_data(recipe, folder, say)
            sizes = (pairs.source_tokenizer.vocab_size, pairs.target_tokenizer.vocab_size)
            return TargetOfSource(pairs, recipe, shape(recipe, folder, *sizes), device)
        case "decoder":
            texts = prepare_text_data(recipe, folder, reads_whole_texts=False, say=say)
            return NextToken(texts, recipe, shape(recipe, folder, *2 * [texts.tokenizer.vocab_size]), device)
        case "encoder":
            texts = prepare_text_data(recipe, folder, reads_whole_texts=True, say=say)
            return MaskedToken(texts, recipe, shape(recipe, folder, *2 * [texts.tokenizer.vocab_size]), device)
        case _:
            assert_never(expected.architecture)


def shape(recipe: Recipe, folder: RunFolder, source_vocab: int, target_vocab: int) -> ModelConfig:
    """The model's shape: that of the recipe, or, if the run began with another one's weights, of its configuration,
    which may have room for more tokens than the tokenizer makes. Raises `ConfigError`."""
    if recipe.start_from is None:
        return recipe.model_shape(source_vocab=source_vocab, target_vocab=target_vocab)
    fields = folder.read_config().to_dict()
    sizes = {"source_vocab": source_vocab, "target_vocab": target_vocab}
    return recipe.checked_shape({**fields, **{name: max(fields[name], size) for name, size in sizes.items()}})
