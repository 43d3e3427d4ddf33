"""Texts in, vectors or guesses out: tokenizer and model of a BERT together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.decoding.streams import run_in_streams
from clearhead.decoding.translator import evaluating
from clearhead.errors import ConfigError, DataError
from clearhead.models.bert import BERT
from clearhead.text.pretrained import PretrainedTokenizer

BATCH_TOKENS = 256
"""Tokens, padding included, of a batch: what is between two matrices stays in a core's own cache then."""


@dataclass(frozen=True)
class Guess:
    """What may stand at a masked place."""

    token: str
    probability: float


class TextEncoder:
    """A model that reads texts, and its tokenizer. `clearhead.load(run)` makes one from a run folder.

    A text's result doesn't depend on the other texts of the call.
    """

    def __init__(self, model: BERT, tokenizer: PretrainedTokenizer) -> None:
        self.model = model
        self.tokenizer = tokenizer

    def vectors(self, texts: Sequence[str]) -> Float[Tensor, "n m"]:
        """One vector for each text: the mean of its tokens' states, control tokens included (Reimers and Gurevych,
        2019). A text with more tokens than the model has positions is cut."""
        if not texts:
            return torch.empty(0, self.model.config.d_model)
        encoded = self.tokenizer.encode_batch(texts, longest=self.model.config.max_positions)
        order = sorted(range(len(texts)), key=lambda place: -len(encoded[place]))
        batches = batches_of([len(encoded[place]) for place in order])
        work = [[encoded[place] for place in order[first:last]] for first, last in batches]
        with evaluating(self.model):
            means = torch.cat(list(run_in_streams(self._means, work, self._device())))
        return torch.empty_like(means).index_copy_(0, torch.tensor(order), means)

    def similarities(self, texts: Sequence[str], others: Sequence[str] | None = None) -> Float[Tensor, "n k"]:
        """The cosine of each text's vector with each of the others' (by default with each other's)."""
        rows = torch.nn.functional.normalize(self.vectors(texts), dim=-1)
        columns = rows if others is None else torch.nn.functional.normalize(self.vectors(others), dim=-1)
        return rows @ columns.T

    def fill_mask(self, text: str, *, n_best: int = 5) -> list[list[Guess]]:
        """The likeliest tokens for each masked place of a text, the best first.

        The mask is written as the tokenizer names it: `Paris is the [MASK] of France.`

        Raises:
            ConfigError: the model has no masked-token head, or no mask.
            DataError: nothing is masked.
        """
        mask = self.tokenizer.control.mask
        if mask is None:
            raise ConfigError("this model's tokenizer has no mask token")
        ids = torch.tensor([self.tokenizer.encode_masked(text)], device=self._device())
        places = (ids[0] == mask).nonzero().squeeze(1)
        if not len(places):
            raise DataError(f"nothing is masked in {text!r}: write {self.tokenizer.tokens([mask])[0]} where to guess")
        with evaluating(self.model), torch.inference_mode():
            states = self.model(ids)[0, places]
            best = self.model.masked_token_logits(states).softmax(-1).topk(n_best)
        return [
            [Guess(*pair) for pair in zip(self.tokenizer.tokens(tokens), probabilities, strict=True)]
            for tokens, probabilities in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    @torch.inference_mode()
    def _means(self, batch: list[list[int]]) -> Float[Tensor, "b m"]:
        """The vectors of one batch."""
        longest = max(len(ids) for ids in batch)
        padded = torch.tensor([ids + [0] * (longest - len(ids)) for ids in batch], device=self._device())
        lengths = torch.tensor([len(ids) for ids in batch], device=self._device())
        real = torch.arange(longest, device=self._device()) < lengths[:, None]
        states = self.model(padded, None if bool(real.all()) else real)
        return ((states * real[:, :, None]).sum(1) / lengths[:, None]).cpu()

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def batches_of(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Where each batch begins and ends, for lengths that fall: at most `BATCH_TOKENS` tokens each."""
    bounds, first = [], 0
    while first < len(lengths):
        last = min(len(lengths), first + max(1, BATCH_TOKENS // max(1, lengths[first])))
        bounds.append((first, last))
        first = last
    return bounds
