"""Positions of every kind are seen: added to the embedding, turned into queries and keys, or added to the scores."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from clearhead.doctor import examine
from clearhead.doctor.one_sided_patient import make_patient
from clearhead.models.llama import llama_config
from clearhead.recipe import TrainingSection


class Model(nn.Module):
    """Two layers of attention with `positions`: none, added, rotary, or by distance in the scores."""

    def __init__(self, positions: str, *, causal: bool) -> None:
        super().__init__()
        self.positions, self.causal = positions, causal
        self.embedding, self.out = nn.Embedding(31, 14), nn.Linear(14, 31)
        self.table = nn.Embedding(64, 14) if positions == "added" else None
        self.layers = nn.ModuleList(nn.ModuleDict({"qkv": nn.Linear(14, 42)}) for _ in range(2))

    def forward(self, ids: Tensor) -> Tensor:
        x, places = self.embedding(ids), torch.arange(ids.size(1))
        if self.table is not None:
            x = x + self.table(places)
        for layer in self.layers:
            x = x + self.attend(layer["qkv"](x).chunk(3, -1), places)
        return self.out(x)

    def attend(self, qkv: tuple[Tensor, ...], places: Tensor) -> Tensor:
        query, key, value = qkv
        if self.positions == "rotary":
            query, key = rotated(query, places), rotated(key, places)
        if self.positions == "nothing but averages":
            return (value.cumsum(1) / (places[:, None] + 1)) if self.causal else value.mean(1, keepdim=True)
        scores = query @ key.transpose(1, 2) * 14**-0.5
        if self.positions == "distance":
            scores = scores - 0.3 * (places[:, None] - places).abs()
        if self.causal:
            scores = scores.masked_fill(places[:, None] < places, -torch.inf)
        return scores.softmax(-1) @ value


def rotated(x: Tensor, places: Tensor) -> Tensor:
    """Pairs of features turned by an angle that grows with the place."""
    angles = places[:, None] * 10 ** -torch.arange(7.0)
    one, other = x.chunk(2, -1)
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    return torch.cat([one * cos - other * sin, one * sin + other * cos], -1)


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
@pytest.mark.parametrize(
    ("positions", "verdict", "said"),
    [
        ("added", "fine", "0 positions look like another one"),
        ("rotary", "fine", "positions are relative"),
        ("distance", "fine", "positions are relative"),
        ("none", "fault", "order is invisible|attention weighs all of them alike"),
    ],
)
def test_each_kind_of_positions(kind, positions, verdict, said):
    finding = finding_on(positions, kind)
    assert finding.verdict == verdict, finding.measured
    assert any(part in finding.measured for part in said.split("|"))


def finding_on(positions, kind):
    torch.manual_seed(0)
    model = Model(positions, causal=kind == "decoder")
    return examine(model, checks=["positions"], kind=kind)["positions"]


def test_where_no_attention_is_seen_nothing_is_claimed():
    assert finding_on("nothing but averages", "decoder").verdict == "not measured"
    assert finding_on("nothing but averages", "encoder").is_fault  # it sees no order, whatever it is


def test_our_own_llama():
    shape = {"d_model": 32, "d_ff": 48, "n_heads": 2, "decoder_layers": 2}
    config = llama_config(vocabulary=31, kv_heads=1, **shape)
    finding = examine(make_patient(config, TrainingSection(), pad=30), checks=["positions"])["positions"]
    assert finding.verdict == "fine", finding.measured
    assert "positions are relative" in finding.measured
