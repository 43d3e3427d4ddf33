"""One step of decoding: which tokens continue which hypotheses.

Axes: `b` sentence, `k` hypothesis of a sentence, `r` row, that is, an open hypothesis (`Rows`), `v` vocabulary. A
hypothesis that is not open has the log-probability minus infinity.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.parts.cache import Rows


class Choice(NamedTuple):
    """The hypotheses after a step."""

    log_probabilities: Float[Tensor, "b k"]
    origins: Int[Tensor, "b k"]
    """Which of the sentence's hypotheses each one continues."""
    tokens: Int[Tensor, "b k"]


class Candidates(NamedTuple):
    """Each hypothesis' own best continuations."""

    gains: Float[Tensor, "r c"]
    """Their log-probabilities."""
    tokens: Int[Tensor, "r c"]


def best_candidates(logits: Float[Tensor, "r v"], normalizer: Float[Tensor, " r"], count: int) -> Candidates:
    """The tokens with the largest logits."""
    if count == 1:
        best, tokens = logits.max(-1, keepdim=True)
    else:
        best, tokens = logits.topk(min(count, logits.size(-1)), dim=-1)
    return Candidates(best - normalizer[:, None], tokens)


def choose_best(
    log_probabilities: Float[Tensor, "b k"], candidates: Candidates, rows: Rows, slots: Int[Tensor, " b"]
) -> Choice:
    """Beam search: of all continuations of a sentence's open hypotheses the best `slots`.

    A hypothesis that has ended keeps its slot, so a beam of 1 ends where greedy search ends. Only each hypothesis'
    own best `k` can be among the best `k` of all.
    """
    k = log_probabilities.size(1)
    continued = (log_probabilities[:, :, None] + rows.spread(candidates.gains)).flatten(1)
    chosen, places = continued.topk(k, dim=-1)
    chosen = chosen.masked_fill(torch.arange(k, device=slots.device) >= slots[:, None], -math.inf)
    tokens = rows.spread(candidates.tokens).flatten(1).gather(1, places)
    return Choice(chosen, places // candidates.tokens.size(-1), tokens)


def choose_at_random(
    log_probabilities: Float[Tensor, "b k"],
    logits: Float[Tensor, "r v"],
    normalizer: Float[Tensor, " r"],
    rows: Rows,
    uniform: Float[Tensor, "b k"],
    *,
    temperature: float,
    top_k: int,
    top_p: float,
) -> Choice:
    """Sampling: every hypothesis draws its own next token, by inverting the distribution at `uniform`.

    The log-probability added is that of the model, whatever the temperature.
    """
    ordered, tokens = (logits / temperature).sort(-1, descending=True)
    probabilities = ordered.softmax(-1)
    if top_k:
        probabilities[:, top_k:] = 0.0
    if top_p < 1.0:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= top_p * probabilities.sum(-1, keepdim=True), 0.0)
    reached = probabilities.cumsum(-1)
    drawn = (reached <= rows.gather(uniform)[:, None] * reached[:, -1:]).sum(-1, keepdim=True)
    last = (probabilities > 0).sum(-1, keepdim=True) - 1
    token = tokens.gather(-1, drawn.minimum(last))
    gains = logits.gather(-1, token).squeeze(-1) - normalizer
    origins = torch.arange(uniform.size(1), device=logits.device).expand_as(uniform)
    return Choice(log_probabilities + rows.spread(gains), origins, rows.spread(token.squeeze(-1)))
