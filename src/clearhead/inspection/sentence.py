"""One translation, looked into: its tokens, every attention map, and what the model nearly wrote instead.

Axes: `l` layer (`e` of the encoder), `h` head, `q` query, `k` key, `s` source position, `t` target position, `v`
vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.control_tokens import BOS, EOS
from clearhead.errors import ConfigError
from clearhead.inspection.alignment import align
from clearhead.inspection.heads import KINDS, Kind, attention_path
from clearhead.inspection.recording import record_attention
from clearhead.inspection.statistics import HeadStatistics, sentence_statistics
from clearhead.models.transformer import Transformer
from clearhead.text.loading import AnyTokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Alternative:
    """A token that could have been written."""

    token: str
    probability: float


@dataclass(frozen=True)
class Step:
    """One step of the decoding, as it was when the tokens before it had been written."""

    token: str
    """What was written."""
    probability: float
    alternatives: list[Alternative]
    """The likeliest tokens, the best first, what was written among them or not."""


@dataclass(frozen=True, repr=False)
class Inspection:
    """What `Translator.inspect` gives. In a notebook it shows itself as the page that `to_html` makes.

    All maps are those of one forward pass over the translation. A row is a query: how it shares out its attention,
    which is 1, among the keys. The decoder's row `t` is the step that writes target token `t`; its keys are what was
    written before, from the start token on.
    """

    source: str
    translation: str
    source_tokens: list[str]
    """The end token included, as the model reads it."""
    target_tokens: list[str]
    """What each step wrote, the end token included."""
    encoder: Float[Tensor, "e h s s"]
    decoder: Float[Tensor, "l h t t"]
    cross: Float[Tensor, "l h t s"]
    steps: list[Step]
    """One for each target token."""
    alignment: list[int]
    """For each target token the place of the source token that it comes from (`clearhead.inspection.alignment`)."""
    source_cut: bool = False
    """The source had more than `max_source_length` tokens; the rest was not read."""
    hit_length_limit: bool = False
    """The translation was cut at its length limit: its end token is put in, not written."""

    @property
    def notes(self) -> list[str]:
        """What is missing of the text or of its translation, a sentence each."""
        told = []
        if self.source_cut:
            told.append(f"the source is too long; what comes after {len(self.source_tokens) - 1:,} tokens was not read")
        if self.hit_length_limit:
            told.append(f"the output was cut at its length limit of {len(self.target_tokens) - 1:,} tokens")
        return told

    @property
    def log_probability(self) -> float:
        """Natural logarithm, summed over the tokens and the end token; what `Translator.score` gives."""
        probabilities = torch.tensor([step.probability for step in self.steps], dtype=torch.float64)
        return float(probabilities.log().sum())

    def maps(self, kind: str) -> Float[Tensor, "l h q k"]:
        """All weights of a kind. Raises `ConfigError` for a kind that there is not."""
        if kind not in KINDS:
            raise ConfigError(f"there is no attention of the kind {kind!r}; choose one of {', '.join(KINDS)}")
        return getattr(self, kind)

    def weights(self, kind: str, layer: int, head: int | None = None) -> Float[Tensor, "q k"]:
        """The map of a head, or the mean over a layer's heads. Layers and heads count from 0, as in the modules.

        Raises `ConfigError` for a layer or a head that there is not.
        """
        maps = self.maps(kind)
        for what, number, count in (("layer", layer, maps.size(0)), ("head", head, maps.size(1))):
            if number is not None and not 0 <= number < count:
                there_are = f"they are 0 to {count - 1}" if count else "there are none"
                raise ConfigError(f"{kind} attention has no {what} {number}: {there_are}")
        return maps[layer].mean(0) if head is None else maps[layer, head]

    def labels(self, kind: str) -> tuple[list[str], list[str]]:
        """The tokens of a kind's queries and keys."""
        read = ["<s>", *self.target_tokens[:-1]]
        return {
            "encoder": (self.source_tokens, self.source_tokens),
            "decoder": (self.target_tokens, read),
            "cross": (self.target_tokens, self.source_tokens),
        }[kind]

    def statistics(self) -> list[HeadStatistics]:
        """Entropy, confidence, distance, diagonality and shares of every head, over this sentence."""
        return [
            statistics for kind in KINDS for statistics in sentence_statistics(kind, self.maps(kind), self.labels(kind))
        ]

    def sharpest(self, kind: str = "cross") -> tuple[int, int]:
        """Layer and head of the most decided map of a kind: its rows look at the fewest keys."""
        maps = self.maps(kind)
        if not len(maps):
            raise ConfigError(f"the model has no {kind} attention to show")
        decided = maps.square().sum(-1).mean(-1)  # a row's sum of squares is 1 if it looks at one key only
        place = int(decided.argmax())
        return place // maps.size(1), place % maps.size(1)

    def to_html(self) -> str:
        """One self-contained page, to be written to a file and opened in a browser: nothing is fetched."""
        from clearhead.inspection.page import render_page

        return render_page(self)

    def plot(self, kind: str = "cross", layer: int | None = None, head: int | None = None) -> Figure:
        """A matplotlib figure: one head's map, or without `layer` all of a kind, layers by heads."""
        from clearhead.inspection.plot import plot_grid, plot_map

        return plot_grid(self, kind) if layer is None else plot_map(self, kind, layer, head)

    def save(self, path: Path | str) -> None:
        """Write the page."""
        Path(path).write_text(self.to_html(), encoding="utf-8", newline="\n")

    def _repr_html_(self) -> str:
        from clearhead.inspection.page import render_frame

        return render_frame(self)

    def __repr__(self) -> str:
        return f"Inspection({self.source!r} → {self.translation!r}, log_probability={self.log_probability:.4f})"


def look_inside(
    model: Transformer,
    tokenizers: tuple[AnyTokenizer, AnyTokenizer],
    source: str,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    *,
    alternatives: int,
    source_cut: bool = False,
    hit_length_limit: bool = False,
) -> Inspection:
    """One forward pass over a source (its ids end with the end token) and a target (its ids don't), recorded.

    The model is to be in eval mode.
    """
    source_tokenizer, target_tokenizer = tokenizers
    device = next(model.parameters()).device
    written = [*target_ids, EOS]
    with torch.inference_mode(), record_attention(model) as maps:
        logits = model(torch.tensor([source_ids], device=device), torch.tensor([[BOS, *target_ids]], device=device))[
            0
        ].float()
    h, s, t = model.config.n_heads, len(source_ids), len(written)
    stacks = {
        "encoder": stack_layers(maps, "encoder", (h, s, s)),
        "decoder": stack_layers(maps, "decoder", (h, t, t)),
        "cross": stack_layers(maps, "cross", (h, t, s)),
    }
    return Inspection(
        source=source,
        translation=target_tokenizer.decode(target_ids),
        source_tokens=source_tokenizer.tokens(source_ids),
        target_tokens=target_tokenizer.tokens(written),
        steps=decoding_steps(logits, torch.tensor(written, device=device), target_tokenizer, alternatives),
        alignment=align(stacks["cross"]),
        source_cut=source_cut,
        hit_length_limit=hit_length_limit,
        **stacks,
    )


def stack_layers(maps: Mapping[str, Tensor], kind: Kind, shape: tuple[int, int, int]) -> Float[Tensor, "l h q k"]:
    """The maps of the only sentence of a batch, layer upon layer; there may be no layer."""
    layers = [torch.zeros(0, *shape)]
    while (path := attention_path(kind, len(layers) - 1)) in maps:
        layers.append(maps[path].float().cpu())
    return torch.cat(layers)


def decoding_steps(
    logits: Float[Tensor, "t v"], written: Int[Tensor, " t"], tokenizer: AnyTokenizer, alternatives: int
) -> list[Step]:
    """What was written at each step, and what the model thought of it and of the best others."""
    probabilities = logits.softmax(-1)
    chosen = probabilities.gather(1, written[:, None]).squeeze(1).tolist()
    best, ids = probabilities.topk(min(alternatives, logits.size(-1)), dim=-1)
    return [
        Step(token, probability, [Alternative(*pair) for pair in zip(tokenizer.tokens(row_ids), row, strict=True)])
        for token, probability, row_ids, row in zip(
            tokenizer.tokens(written.tolist()), chosen, ids.tolist(), best.tolist(), strict=True
        )
    ]
