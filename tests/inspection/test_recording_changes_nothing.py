"""Recording never changes an output: over random shapes of models, masks and lengths, in all ways to run a model."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

import clearhead
from clearhead.config import ModelConfig
from clearhead.control_tokens import BOS, CONTROL_COUNT, EOS
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.search import search
from clearhead.models.gpt import GPT
from clearhead.models.transformer import Transformer
from clearhead.parts.attention import MultiHeadAttention
from clearhead.parts.cache import Rows

VOCABULARY = CONTROL_COUNT + 5
LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=4)
CONFIGS = st.builds(
    ModelConfig,
    source_vocab=st.just(VOCABULARY),
    target_vocab=st.just(VOCABULARY),
    d_model=st.sampled_from([12, 24]),
    d_ff=st.sampled_from([5, 17]),
    n_heads=st.sampled_from([1, 2, 3, 6]),
    encoder_layers=st.integers(0, 2),
    decoder_layers=st.integers(1, 2),
    norm_position=st.sampled_from(["pre", "post"]),
    norm=st.sampled_from(["layer", "rms"]),
    feed_forward=st.sampled_from(["relu", "gelu", "swiglu"]),
    positions=st.sampled_from(["sinusoids", "sinusoids_halves"]),
    tied=st.sampled_from(["none", "output", "all"]),
    dropout=st.sampled_from([0.0, 0.3]),
    attention_dropout=st.sampled_from([None, 0.0, 0.5]),
)
DECODERS = st.builds(
    ModelConfig,
    architecture=st.just("decoder"),
    source_vocab=st.just(VOCABULARY),
    target_vocab=st.just(VOCABULARY),
    d_model=st.just(24),
    d_ff=st.just(17),
    n_heads=st.sampled_from([2, 6]),
    kv_heads=st.sampled_from([None, 1, 2]),
    encoder_layers=st.just(0),
    decoder_layers=st.integers(1, 2),
    norm_position=st.just("pre"),
    norm=st.sampled_from(["layer", "rms"]),
    positions=st.sampled_from(["sinusoids", "learned", "rotary"]),
    max_positions=st.just(16),
    dropout=st.sampled_from([0.0, 0.3]),
)


def make_model(config, seed):
    """Weights far from where they start, so that attention is far from even."""
    torch.manual_seed(seed)
    model = Transformer(config) if config.architecture == "encoder-decoder" else GPT(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.4 * torch.randn_like(parameter)
    return model.eval()


def random_ids(lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(CONTROL_COUNT, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


def padded(sequences):
    return pad_sequence([torch.tensor(ids) for ids in sequences], batch_first=True)


def watched_and_not(model, run):
    """What `run` gives plainly, then recorded; and that something was recorded."""
    results = []
    for context in (contextlib.nullcontext({"": None}), clearhead.record_attention(model)):
        torch.manual_seed(0)
        with context as maps:
            results.append(run())
        assert maps
    return results


def assert_same(plain, watched):
    assert len(plain) == len(watched)
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))


# cases I2, M2
@settings(deadline=None, max_examples=60)
@given(config=CONFIGS, lengths=LENGTHS, training=st.booleans(), seed=st.integers(0, 10**6))
def test_logits_gradients_and_dropout(config, lengths, training, seed):
    model = make_model(config, seed).train(training)
    source = padded([[*ids, EOS] for ids in random_ids(lengths, seed)])
    target = padded([[BOS, *ids] for ids in random_ids(reversed(lengths), seed + 1)])

    def run():
        logits = model(source, target)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        return [logits, *torch.autograd.grad(loss, list(model.parameters()), allow_unused=True), torch.rand(2)]

    plain, watched = ([tensor for tensor in tensors if tensor is not None] for tensors in watched_and_not(model, run))
    assert_same(plain, watched)


# case I2
@settings(deadline=None, max_examples=40)
@given(config=DECODERS, lengths=LENGTHS, training=st.booleans(), seed=st.integers(0, 10**6))
def test_a_decoder_alone(config, lengths, training, seed):
    """Rotary positions and shared key and value heads are what only these models have."""
    model = make_model(config, seed).train(training)
    ids = padded(random_ids(lengths, seed))

    def run():
        logits = model(ids)
        gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()), allow_unused=True)
        return [logits, *(gradient for gradient in gradients if gradient is not None), torch.rand(2)]

    assert_same(*watched_and_not(model, run))


# cases I2, M1, M2
@settings(deadline=None, max_examples=60)
@given(data=st.data(), causal=st.booleans(), kind=st.sampled_from(["none", "keys", "rows", "heads"]))
def test_any_mask(data, causal, kind):
    """Rows that may look at nothing, too: zeros in the output and in the map."""
    b, h = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 2, 4]))
    q = data.draw(st.integers(1, 5))
    k = data.draw(st.integers(q, 6)) if causal else data.draw(st.integers(1, 6))
    torch.manual_seed(data.draw(st.integers(0, 10**6)))
    attention = MultiHeadAttention(8, h)
    shapes = {"keys": (b, 1, 1, k), "rows": (b, 1, q, k), "heads": (b, h, q, k)}
    mask = None if kind == "none" else torch.rand(shapes[kind]) < data.draw(st.sampled_from([0.0, 0.5, 0.9]))
    x, memory = torch.randn(b, q, 8, requires_grad=True), torch.randn(b, k, 8)

    def run():
        output = attention(x, memory, mask, causal=causal)
        return [output, *torch.autograd.grad(output.square().sum(), [x, *attention.parameters()])]

    plain, watched = watched_and_not(attention, run)
    assert_same(plain, watched)
    assert all(tensor.isfinite().all() for tensor in plain)
    with clearhead.record_attention(attention) as maps:
        attention(x, memory, mask, causal=causal)
    allowed = torch.ones(b, h, q, k, dtype=torch.bool) if mask is None else mask.expand(b, h, q, k)
    if causal:
        allowed = allowed & torch.ones(q, k, dtype=torch.bool).tril(k - q)
    [weights] = maps.values()
    assert (weights[~allowed] == 0).all()
    torch.testing.assert_close(weights.sum(-1), allowed.any(-1).float())


# cases I1, I2
@settings(deadline=None, max_examples=40)
@given(
    config=CONFIGS,
    lengths=LENGTHS,
    beam=st.integers(1, 4),
    sample=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_whole_searches(config, lengths, beam, sample, seed):
    model = make_model(config, seed)
    sources = [[*ids, EOS] for ids in random_ids(lengths, seed)]
    options = DecodingOptions(beam_size=beam, n_best=beam, sample=sample, max_length_ratio=1.0, max_length_extra=2)
    plain, watched = watched_and_not(model, lambda: search(model, sources, options))
    assert plain == watched


# cases I2, G13
@settings(deadline=None, max_examples=40)
@given(config=CONFIGS, lengths=LENGTHS, closed=st.booleans(), seed=st.integers(0, 10**6))
def test_steps_with_some_hypotheses_closed(config, lengths, closed, seed):
    model = make_model(config, seed)
    source = padded([[*ids, EOS] for ids in random_ids(lengths, seed)])

    @torch.inference_mode()
    def run():
        cache = model.start_cache(model.encode(source), beams=2)
        is_open = torch.ones(len(lengths), 2, dtype=torch.bool)
        found = [model.step(torch.full((2 * len(lengths), 1), BOS), cache)]
        if closed:
            is_open[0, 1] = False
        cache.rows = Rows(is_open)
        cache.follow(torch.tensor([[1, 0]] * len(lengths)))
        return [*found, model.step(torch.full((int(is_open.sum()), 1), CONTROL_COUNT), cache)]

    assert_same(*watched_and_not(model, run))
