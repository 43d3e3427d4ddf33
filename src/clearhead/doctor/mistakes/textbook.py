"""A Transformer as tutorials write it, with its training and decoding, and without mistakes.

Every step that the mistakes get wrong is a method or a function of its own here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.doctor.patient import Patient

PAD, BOS, EOS = 0, 1, 2
VOCABULARY = 40
Cache = list[dict[str, Tensor]]


class Attention(nn.Module):
    """Multi-head attention; masks are True where a query may attend."""

    def __init__(self, d_model: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None, past: dict[str, Tensor] | None = None) -> Tensor:
        """Attend from `x` to `memory`; with `past`, to the keys and values in it too."""
        query, key, value = self.split(self.w_q(x)), self.split(self.w_k(memory)), self.split(self.w_v(memory))
        if past is not None:
            key, value = self.remember(past, key, value)
        weights = self.weigh(self.score(query, key), mask)
        return self.w_o(self.join(self.dropout(weights) @ value))

    def split(self, x: Tensor) -> Tensor:
        """`(b, t, m)` to `(b, h, t, d)`."""
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """The inverse of `split`."""
        return x.transpose(1, 2).flatten(2)

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Scaled products."""
        return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))

    def weigh(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Softmax over the keys that may be attended to."""
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        return scores.softmax(-1)

    def remember(self, past: dict[str, Tensor], key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put new keys and values behind those of earlier steps."""
        if "key" in past:
            key, value = torch.cat([past["key"], key], 2), torch.cat([past["value"], value], 2)
        past["key"], past["value"] = key, value
        return key, value


class Layer(nn.Module):
    """A layer of the encoder, or of the decoder when it is given a memory. Pre-norm."""

    attention: type[Attention] = Attention
    normalization: Any = nn.LayerNorm

    def __init__(self, d_model: int, heads: int, dropout: float, *, cross: bool) -> None:
        super().__init__()
        self.self_attention = self.attention(d_model, heads, dropout)
        self.cross_attention = self.attention(d_model, heads, dropout) if cross else None
        self.feed_forward = nn.Sequential(nn.Linear(d_model, 2 * d_model), nn.ReLU(), nn.Linear(2 * d_model, d_model))
        self.norms = nn.ModuleList(self.normalization(d_model) for _ in range(3 if cross else 2))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        past: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """Self-attention, attention to the memory, feed-forward."""
        x = self.add(x, 0, lambda x: self.self_attention(x, x, mask, past))
        if self.cross_attention is not None:
            attend = self.cross_attention
            x = self.add(x, 1, lambda x: attend(x, self.memory_for(x, memory), memory_mask))
        return self.add(x, -1, self.feed_forward)

    def add(self, x: Tensor, place: int, sublayer: Any) -> Tensor:
        """The residual connection and the normalisation."""
        return x + self.dropout(sublayer(self.norms[place](x)))

    def memory_for(self, x: Tensor, memory: Tensor | None) -> Tensor:
        """What cross-attention looks at."""
        assert memory is not None
        return memory


class Positions(nn.Module):
    """Adds sinusoids."""

    table: Tensor

    def __init__(self, d_model: int, length: int = 200) -> None:
        super().__init__()
        angle = torch.arange(length)[:, None] * torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000) / d_model))
        self.register_buffer("table", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """`x` is `(b, t, m)`."""
        return x + self.table[start : start + x.size(1)]


class Textbook(nn.Module):
    """Encoder, decoder, embeddings."""

    layer: type[Layer] = Layer
    positions_class: type[Positions] = Positions

    def __init__(self, *, d_model: int = 32, heads: int = 4, layers: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.d_model = d_model
        self.source_embedding = nn.Embedding(VOCABULARY, d_model)
        self.target_embedding = nn.Embedding(VOCABULARY, d_model)
        self.positions = self.positions_class(d_model)
        self.encoder = self.stack(layers, d_model, heads, dropout, cross=False)
        self.decoder = self.stack(layers, d_model, heads, dropout, cross=True)
        self.encoder_norm, self.decoder_norm = self.layer.normalization(d_model), self.layer.normalization(d_model)
        self.projection = nn.Linear(d_model, VOCABULARY, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.first_weights()
        self.tie()

    def stack(self, layers: int, d_model: int, heads: int, dropout: float, *, cross: bool) -> Any:
        """The list of layers."""
        return nn.ModuleList(self.layer(d_model, heads, dropout, cross=cross) for _ in range(layers))

    def first_weights(self) -> None:
        """Embeddings of deviation `0.5 / sqrt(d_model)`, because they are tied and scaled."""
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=0.5 * self.d_model**-0.5)

    def tie(self) -> None:
        """The output projection is the target's embedding."""
        self.projection.weight = self.target_embedding.weight

    def embed(self, embedding: nn.Embedding, ids: Tensor, start: int = 0) -> Tensor:
        """Embedding times the root of `d_model`, plus positions."""
        return self.dropout(self.positions(embedding(ids) * math.sqrt(self.d_model), start))

    def source_mask(self, source: Tensor) -> Tensor | None:
        """`(b, 1, 1, s)`: every token but padding."""
        return (source != PAD)[:, None, None, :]

    def memory_mask(self, source: Tensor) -> Tensor | None:
        """What cross-attention may see."""
        return self.source_mask(source)

    def target_mask(self, ids: Tensor) -> Tensor | None:
        """`(1, 1, t, t)`: the tokens so far."""
        return torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).tril()[None, None]

    def encode(self, source: Tensor) -> Tensor:
        """The memory."""
        x, mask = self.embed(self.source_embedding, source), self.source_mask(source)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def decode(self, ids: Tensor, memory: Tensor, memory_mask: Tensor | None) -> Tensor:
        """Logits for all positions at once."""
        x, mask = self.embed(self.target_embedding, ids), self.target_mask(ids)
        for layer in self.decoder:
            x = layer(x, mask, memory, memory_mask)
        return self.projection(self.decoder_norm(x))

    def forward(self, source: Tensor, ids: Tensor) -> Tensor:
        """Logits of the next token."""
        return self.decode(ids, self.encode(source), self.memory_mask(source))

    def step(self, ids: Tensor, position: int, memory: Tensor, memory_mask: Tensor | None, cache: Cache) -> Tensor:
        """Logits behind one more token `(b, 1)`."""
        x = self.embed(self.target_embedding, ids, position)
        for layer, past in zip(self.decoder, cache, strict=True):
            x = layer(x, self.step_mask(position), memory, memory_mask, past)
        return self.projection(self.decoder_norm(x))

    def step_mask(self, position: int) -> Tensor | None:
        """The newest token may see all that is in the cache."""
        return None


# ---- training and decoding ------------------------------------------------------------------------------------------


def shifted(target: Tensor) -> tuple[Tensor, Tensor]:
    """The decoder's input and the labels, of `BOS y … EOS PAD …`."""
    return target[:, :-1], target[:, 1:]


def token_losses(model: nn.Module, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of every position `(b, t)`, and which of them are real."""
    ids, labels = shifted(target)
    logits = model(source, ids)
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
    return losses, labels != PAD


def loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    """The mean over real target tokens."""
    losses, real = token_losses(model, source, target)
    return losses[real].mean()


def gradient(model: nn.Module, batches: Sequence[tuple[Tensor, Tensor]]) -> None:
    """One update's gradient, from all its batches."""
    tokens = sum(int((shifted(target)[1] != PAD).sum()) for _, target in batches)
    for source, target in batches:
        losses, real = token_losses(model, source, target)
        (losses[real].sum() / tokens).backward()  # type: ignore[no-untyped-call]


WARMUP, UPDATES = 400, 4000


def rate(update: int) -> float:
    """Section 5.3, for updates 1, 2, 3, …"""
    return float(32**-0.5 * min(update**-0.5, update * WARMUP**-1.5))


def optimizer(model: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
    """Adam, and its rate from the first update on."""
    adam = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    return adam, torch.optim.lr_scheduler.LambdaLR(adam, lambda step: rate(step + 1))


def cached(model: Any, source: Tensor, ids: Tensor) -> Tensor:
    """Logits token by token."""
    memory, mask = model.encode(source), model.memory_mask(source)
    cache: Cache = [{} for _ in model.decoder]
    return torch.cat([model.step(ids[:, t : t + 1], t, memory, mask, cache) for t in range(ids.size(1))], 1)


def tile(x: Tensor, beams: int) -> Tensor:
    """Sentences s1 s2 become s1 s1 … s2 s2 …"""
    return x.repeat_interleave(beams, 0)


def decode(model: Any, source: Tensor, beams: int, tile: Any = tile) -> list[list[int]]:
    """Beam search without a cache, up to twice the source's length."""
    batch = len(source)
    memory, mask = tile(model.encode(source), beams), model.memory_mask(source)
    mask = None if mask is None else tile(mask, beams)
    ids = torch.full((batch * beams, 1), BOS)
    totals = torch.full((batch, beams), -math.inf)
    totals[:, 0] = 0.0
    for _ in range(2 * source.size(1)):
        log_p = model.decode(ids, memory, mask)[:, -1].log_softmax(-1)
        ended = (ids == EOS).any(1)
        log_p[ended] = -math.inf
        log_p[ended, PAD] = 0.0
        candidates = (totals[:, :, None] + log_p.view(batch, beams, -1)).flatten(1)
        totals, places = candidates.topk(beams, 1)
        rows = (places // VOCABULARY + beams * torch.arange(batch)[:, None]).flatten()
        ids = torch.cat([ids[rows], (places % VOCABULARY).view(-1, 1)], 1)
        if bool((ids == EOS).any(1).all()):
            break
    best = ids.view(batch, beams, -1)[:, 0].tolist()
    return [[token for token in row if token not in (PAD, BOS, EOS)] for row in best]


def patient(model: type[Textbook] = Textbook, *, sizes: dict[str, Any] | None = None, **changes: Any) -> Patient:
    """The whole of it; `changes` are fields of `Patient`."""
    usual: dict[str, Any] = {
        "build": lambda: model(**(sizes or {})),
        "name": model.__name__,
        "vocabulary": VOCABULARY,
        "loss": loss,
        "gradient": gradient,
        "optimizer": optimizer,
        "warmup": WARMUP,
        "total_updates": UPDATES,
        "cached": cached,
        "decode": decode,
        "max_length": 200,
    }
    return Patient(**{**usual, **changes})
