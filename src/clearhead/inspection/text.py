"""A text looked into, in a model with one side: every attention map, and how likely the model finds each token.

Axes: `l` layer, `h` head, `q` query, `k` key, `t` position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.errors import ConfigError
from clearhead.inspection.recording import record_attention
from clearhead.models.bert import BERT
from clearhead.models.gpt import GPT

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TextInspection:
    """One forward pass over a text. A row of a map is a token that looks: how it shares out its attention."""

    tokens: list[str]
    """Control tokens included, as the model reads them."""
    maps: Float[Tensor, "l h q k"]
    likeliest: list[tuple[str, float]]
    """For each token what the model would rather have there, and its probability; of a model that goes on with texts,
    from the tokens before, so that the first has none (an empty text, 0)."""
    probabilities: list[float]
    """Of each token in its place; 1 for a first one that nothing is said about."""

    def sharpest(self) -> tuple[int, int]:
        """Layer and head of the most decided map: its rows look at the fewest keys. The first row has no choice."""
        decided = self.maps[:, :, 1:].square().sum(-1).mean(-1)
        place = int(decided.argmax())
        return place // self.maps.size(1), place % self.maps.size(1)

    def weights(self, layer: int, head: int | None = None) -> Float[Tensor, "q k"]:
        """The map of a head, or the mean over a layer's. Raises `ConfigError` for one that there is not."""
        for what, number, count in (("layer", layer, self.maps.size(0)), ("head", head, self.maps.size(1))):
            if number is not None and not 0 <= number < count:
                raise ConfigError(f"there is no {what} {number}: they are 0 to {count - 1}")
        return self.maps[layer].mean(0) if head is None else self.maps[layer, head]

    def plot(self, layer: int | None = None, head: int | None = None) -> Figure:
        """A matplotlib figure: one head's map, or without `layer` all of them, layers by heads."""
        from clearhead.inspection.plot import plot_text_grid, plot_text_map

        return plot_text_grid(self) if layer is None else plot_text_map(self, layer, head)


def look_inside_text(
    model: GPT | BERT, ids: Sequence[int], tokens: Sequence[str], names: Sequence[str]
) -> TextInspection:
    """Run the model over a text's ids and record it; `names` are the labels of the whole vocabulary.

    The model is to be in eval mode. Raises `ConfigError` for a BERT without a masked-token head.
    """
    given = torch.tensor([list(ids)], device=next(model.parameters()).device)
    with torch.inference_mode(), record_attention(model) as maps:
        logits = model(given) if isinstance(model, GPT) else model.masked_token_logits(model(given))
    chances = logits[0].float().softmax(-1)
    if isinstance(model, GPT):  # what is said behind a token is about the next one
        chances = chances[:-1]
    own = chances.gather(1, given[0, len(ids) - len(chances) :, None]).squeeze(1).tolist()
    best, places = chances.max(-1)
    likeliest = [(names[place], chance) for place, chance in zip(places.tolist(), best.tolist(), strict=True)]
    silent = len(ids) - len(chances)
    return TextInspection(
        list(tokens),
        torch.cat([weights.float().cpu() for weights in maps.values()]),
        [("", 0.0)] * silent + likeliest,
        [1.0] * silent + own,
    )
