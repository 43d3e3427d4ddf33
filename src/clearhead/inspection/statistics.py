"""What kind of head a head is: how sharp, how far, along the diagonal or not, and what it parks its attention on.

Axes: `b` sentence, `h` head, `q` query, `k` key.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.control_tokens import BOS, EOS, PAD
from clearhead.inspection.heads import KINDS, Head, Kind, attention_path
from clearhead.inspection.recording import record_attention
from clearhead.models.transformer import Transformer
from clearhead.parts.masks import causal_mask
from clearhead.text.batches import Batch


@dataclass(frozen=True)
class HeadStatistics:
    """A head, by the mean over all queries that have a choice, that is, more than one key. NaN where there is none."""

    head: Head
    entropy: float
    """`-Σ w ln w`, in nats: 0 looks at one key; `ln n` at n keys alike."""
    relative_entropy: float
    """The entropy divided by the most that is possible, `ln(number of keys)`: 0 to 1, whatever the length."""
    confidence: float
    """The largest weight on any key but the end token (Voita et al., 2019, section 4)."""
    distance: float
    """`Σ w |k - d|`, in tokens, where `d` is the query's own place: in cross-attention `q (K - 1) / (Q - 1)`."""
    diagonality: float
    """`1 - distance / (the farthest key's distance)`: 1 is the diagonal (Zhang et al., 2021, "On the Usefulness of
    Self-Attention for Automatic Speech Recognition with Transformers", equations 6 and 7)."""
    on_start: float
    """The share of attention on the start token, which only the decoder reads …"""
    on_end: float
    """… on the end token, which only the source has …"""
    on_padding: float
    """… and on padding: anything but 0 is a bug."""


MEASURES = tuple(name for name in HeadStatistics.__dataclass_fields__ if name != "head")


def head_statistics(model: Transformer, batches: Iterable[Batch]) -> list[HeadStatistics]:
    """Every head's statistics over pairs of sources and targets, each read as it stands (teacher forcing).

    The model is to be in eval mode.
    """
    totals: dict[Kind, list[dict[str, Tensor]]] = {kind: [] for kind in KINDS}
    counts: dict[Kind, float] = defaultdict(float)
    for batch in batches:
        with torch.inference_mode(), record_attention(model) as maps:
            model.states(batch.source, batch.decoder_input)
        for kind in KINDS:
            queries = batch.source if kind == "encoder" else batch.decoder_input
            keys = batch.decoder_input if kind == "decoder" else batch.source
            for layer in range(10**9):
                if (weights := maps.get(attention_path(kind, layer))) is None:
                    break
                measured, chooses = measure_rows(weights.float(), queries, keys, causal=kind == "decoder")
                sums = {name: (rows * chooses[:, None]).sum((0, 2)).double().cpu() for name, rows in measured.items()}
                if layer == len(totals[kind]):
                    totals[kind].append(sums)
                else:
                    totals[kind][layer] = {name: totals[kind][layer][name] + sums[name] for name in sums}
            counts[kind] += float(chooses.sum()) if maps.get(attention_path(kind, 0)) is not None else 0.0
    return [
        statistics
        for kind in KINDS
        for layer, sums in enumerate(totals[kind])
        for statistics in by_head(kind, layer, {name: total / counts[kind] for name, total in sums.items()})
    ]


def sentence_statistics(
    kind: Kind, maps: Float[Tensor, "l h q k"], labels: tuple[Sequence[str], Sequence[str]]
) -> list[HeadStatistics]:
    """The same of one sentence's maps, of which nothing is padding."""
    queries, keys = (torch.full((1, len(side)), EOS + 2) for side in labels)
    if kind == "decoder":
        keys[0, 0] = BOS
    else:
        keys[0, -1] = EOS
    found = []
    for layer, weights in enumerate(maps):
        measured, chooses = measure_rows(weights[None], queries, keys, causal=kind == "decoder")
        means = {name: (rows * chooses[:, None]).sum((0, 2)) / chooses.sum() for name, rows in measured.items()}
        found += by_head(kind, layer, means)
    return found


def by_head(kind: Kind, layer: int, means: dict[str, Float[Tensor, " h"]]) -> list[HeadStatistics]:
    """A layer's means, head by head."""
    columns = {name: values.tolist() for name, values in means.items()}
    heads = len(columns["entropy"])
    return [
        HeadStatistics(Head(kind, layer, head), **{name: columns[name][head] for name in MEASURES})
        for head in range(heads)
    ]


def measure_rows(
    weights: Float[Tensor, "b h q k"], queries: Int[Tensor, "b q"], keys: Int[Tensor, "b k"], *, causal: bool
) -> tuple[dict[str, Float[Tensor, "b h q"]], Bool[Tensor, "b q"]]:
    """Every measure of every row, and which rows are real queries that have a choice.

    `queries` and `keys` are the token ids at these places: they say what is padding, start and end.
    """
    real = keys != PAD
    allowed = real[:, None].expand(-1, queries.size(1), -1)
    if causal:
        allowed = allowed & causal_mask(queries.size(1), keys.size(1), keys.device)
    choices = allowed.sum(-1)
    chooses = (queries != PAD) & (choices > 1)

    query_lengths, key_lengths = ((ids != PAD).sum(-1, keepdim=True) for ids in (queries, keys))
    slope = (key_lengths - 1) / (query_lengths - 1).clamp(min=1)
    place = torch.arange(queries.size(1), device=keys.device) * slope
    away = (torch.arange(keys.size(1), device=keys.device) - place[..., None]).abs()
    farthest = away.masked_fill(~allowed, 0.0).amax(-1).clamp(min=1e-9)
    distance = (weights * away[:, None]).sum(-1)
    entropy = -torch.special.xlogy(weights, weights).sum(-1)

    def share(is_it: Bool[Tensor, "b k"]) -> Float[Tensor, "b h q"]:
        return (weights * is_it[:, None, None]).sum(-1)

    return {
        "entropy": entropy,
        "relative_entropy": entropy / choices.clamp(min=2).log()[:, None],
        "confidence": weights.masked_fill((keys == EOS)[:, None, None], 0.0).amax(-1),
        "distance": distance,
        "diagonality": 1 - distance / farthest[:, None],
        "on_start": share(keys == BOS),
        "on_end": share(keys == EOS),
        "on_padding": share(~real),
    }, chooses


def ranked(statistics: Sequence[HeadStatistics], measure: str) -> list[HeadStatistics]:
    """The most telling heads first: the largest values, or of entropies and distances the least."""
    sign = 1 if measure in ("entropy", "relative_entropy", "distance") else -1

    def order(one: HeadStatistics) -> tuple[bool, float]:
        value = getattr(one, measure)
        return math.isnan(value), 0.0 if math.isnan(value) else sign * value

    return sorted(statistics, key=order)
