"""Causal self-attention as GPT and LLaMA have it: rotary positions, and heads of queries that share keys and values."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.parts.attention import Mask, MultiHeadAttention, ScaledDotProductAttention, fused_attention
from clearhead.parts.cache import KeyValueCache, Rows
from clearhead.parts.positions import Rotation, rotate


class GroupedScaledDotProductAttention(ScaledDotProductAttention):
    """The same with fewer heads of keys and values, each of which serves several heads of queries."""

    def forward(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b g k d"],
        value: Float[Tensor, "b g k d"],
        mask: Mask = None,
        *,
        causal: bool = False,
    ) -> Float[Tensor, "b h q d"]:
        """Attend from every query to the keys of its group that `mask` and `causal` allow."""
        served = query.size(1) // key.size(1)
        if served == 1:
            return super().forward(query, key, value, mask, causal=causal)
        if causal:
            key, value = (x.repeat_interleave(served, dim=1) for x in (key, value))
            return super().forward(query, key, value, mask, causal=True)
        # Decoding: the heads that share keys stand in line as their queries, so nothing of the past is copied.
        in_line = query.unflatten(1, (-1, served)).flatten(2, 3)
        in_line_mask = None if mask is None else mask.expand(-1, -1, query.size(2), -1).repeat(1, 1, served, 1)
        self.record(query, key, value, mask)
        found = fused_attention(in_line, key, value, in_line_mask, dropout_p=self.rate)
        return found.unflatten(2, (served, -1)).flatten(1, 2)

    def record(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, *, causal: bool = False) -> None:
        """Hand the weights of every head of queries to whoever is looking."""
        if self.recorder is not None:
            served = query.size(1) // key.size(1)
            key, value = (x.repeat_interleave(served, dim=1) for x in (key, value))
            super().record(query, key, value, mask, causal=causal)


class GroupedQueryAttention(nn.Module):
    """Self-attention in which each of `kv_heads` heads of keys and values serves `n_heads / kv_heads` heads of queries
    (Ainslie et al., 2023). With as many of the ones as of the others it is the paper's multi-head attention; with
    fewer, decoding keeps less and reads less of its past at each step.
    """

    def __init__(self, d_model: int, n_heads: int, kv_heads: int, *, dropout: float = 0.0, biases: bool = True) -> None:
        super().__init__()
        self.n_heads, self.kv_heads = n_heads, kv_heads
        self.width = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model, bias=biases)
        self.w_k = nn.Linear(d_model, kv_heads * self.width, bias=biases)
        self.w_v = nn.Linear(d_model, kv_heads * self.width, bias=biases)
        self.w_o = nn.Linear(d_model, d_model, bias=biases)
        self.attention = GroupedScaledDotProductAttention(dropout=dropout)

    def forward(
        self, x: Float[Tensor, "b t m"], mask: Mask = None, *, rotation: Rotation | None = None
    ) -> Float[Tensor, "b t m"]:
        """Each position attends to itself and those before it, where `mask` allows it too."""
        query, key, value = self.project(x, rotation)
        found = self.attention(query, key, value, mask, causal=True)
        return self.w_o(MultiHeadAttention.join_heads(found))

    def look_back(
        self, x: Float[Tensor, "r q m"], past: KeyValueCache, rows: Rows, mask: Mask, rotation: Rotation | None
    ) -> Float[Tensor, "r q m"]:
        """The newest positions of every open hypothesis attend to themselves and what `mask` says is behind them."""
        query, key, value = self.project(x, rotation)
        key, value = past.append(side_by_side(key, rows), side_by_side(value, rows))
        found = MultiHeadAttention.join_heads(self.attention(side_by_side(query, rows), key, value, mask))
        return self.w_o(rows.gather(found.unflatten(1, (-1, x.size(1)))))

    def project(
        self, x: Float[Tensor, "b t m"], rotation: Rotation | None
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t d"], Float[Tensor, "b g t d"]]:
        """Queries, keys and values in heads; the first two turned by their positions, if positions turn."""
        query, key, value = (self.split_heads(w(x)) for w in (self.w_q, self.w_k, self.w_v))
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        return query, key, value

    def split_heads(self, x: Float[Tensor, "b t m"]) -> Float[Tensor, "b h t d"]:
        """Heads are as wide everywhere; keys and values may have fewer of them."""
        return x.unflatten(-1, (-1, self.width)).transpose(1, 2)

    def start_cache(self, sentences: int, capacity: int) -> KeyValueCache:
        """No past yet, and room for `capacity` entries of each sentence."""
        return KeyValueCache(self.w_k.weight.new_empty(sentences, self.kv_heads, 0, self.width), capacity)


def side_by_side(x: Float[Tensor, "r h q d"], rows: Rows) -> Float[Tensor, "b h kq d"]:
    """A sentence's hypotheses in line, as the queries or the entries of one attention."""
    return rows.spread(x).transpose(1, 2).flatten(2, 3)


def make_causal_attention(config: ModelConfig) -> GroupedQueryAttention:
    """The self-attention of a decoder without a source."""
    return GroupedQueryAttention(
        config.d_model, config.n_heads, config.key_value_heads,
        dropout=config.attention_dropout_rate, biases=config.biases,
    )  # fmt: skip
