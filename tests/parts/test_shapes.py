"""The shapes in signatures are enforced while testing (see `--jaxtyping-packages` in pyproject.toml)."""

import pytest
import torch
from jaxtyping import TypeCheckError

from clearhead.config import ModelConfig
from clearhead.models.transformer import Transformer
from clearhead.parts.attention import MultiHeadAttention, fused_attention, scaled_dot_product_attention
from clearhead.parts.cache import KeyValueCache
from clearhead.parts.masks import padding_mask
from clearhead.parts.normalization import layer_norm

IDS = torch.ones(2, 5, dtype=torch.int64)


def model():
    return Transformer(ModelConfig(source_vocab=3, target_vocab=3, d_model=2, d_ff=2, n_heads=1, encoder_layers=1))


# Without the annotations torch would broadcast in silence, or complain about the wrong thing.
WRONG = {
    "one sentence's target for two sources": lambda: model()(IDS, IDS[:1]),
    "flat positions in two dimensions": lambda: model()(IDS, IDS, IDS),
    "token ids that are floats": lambda: model().encode(IDS.float()),
    "a sentence without a batch": lambda: padding_mask(IDS[0], 0),
    "one key for every value": lambda: fused_attention(*(torch.ones(2, 3, n, 11) for n in (5, 1, 7))),
    "one sentence's values": lambda: scaled_dot_product_attention(*(torch.ones(b, 5, 7) for b in (3, 3, 1))),
    "one sentence's memory": lambda: MultiHeadAttention(6, 2)(torch.ones(2, 5, 6), torch.ones(1, 7, 6)),
    "one gain for every feature": lambda: layer_norm(torch.ones(2, 7), torch.ones(1), torch.ones(7), 1e-5),
    "one head for both": lambda: KeyValueCache(torch.ones(3, 2, 0, 5), 4).append(
        torch.ones(3, 2, 1, 5), torch.ones(3, 1, 1, 5)
    ),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_a_wrong_shape_is_refused(call):
    with pytest.raises(TypeCheckError):
        call()
