"""What may not change the answer: the future, padding, neighbours, order, the cache; for random shapes of the model."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.config import ModelConfig
from clearhead.models.transformer import Transformer
from clearhead.parts.cache import Rows

PAD = 0

several = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 2**31)


@st.composite
def shapes(draw):
    n_heads = draw(st.sampled_from([1, 2, 3, 5]))
    tied = draw(st.sampled_from(["none", "output", "all"]))
    target_vocab = draw(st.integers(5, 19))
    return ModelConfig(
        source_vocab=target_vocab if tied == "all" else draw(st.integers(5, 19)),
        target_vocab=target_vocab,
        d_model=n_heads * draw(st.integers(1, 5)),
        d_ff=draw(st.integers(1, 13)),
        n_heads=n_heads,
        encoder_layers=draw(st.integers(0, 3)),
        decoder_layers=draw(st.integers(1, 3)),
        norm_position=draw(st.sampled_from(["post", "pre"])),
        tied=tied,
        # Outside training no rate may matter.
        dropout=draw(st.sampled_from([0.0, 0.5])),
    )


def make_model(shape, seed, dtype=torch.float64):
    torch.manual_seed(seed)
    model = Transformer(shape)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.4)
            if name.endswith("gamma"):
                parameter += 1
    return model.to(dtype).eval()


def sentences(vocabulary, lengths):
    return [torch.randint(1, vocabulary, (length,)) for length in lengths]


def padded(rows, extra=0):
    batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    return torch.nn.functional.pad(batch, (0, extra), value=PAD)


def close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


lengths = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5)


# case M4
@several
@given(shape=shapes(), seed=seeds, length=st.integers(2, 12), data=st.data())
def test_the_future_can_not_change_the_past(shape, seed, length, data):
    model = make_model(shape, seed)
    now = data.draw(st.integers(1, length - 1), label="first changed position")
    source = torch.randint(1, shape.source_vocab, (2, 5))
    target = torch.randint(1, shape.target_vocab, (2, length))
    changed = target.clone()
    changed[:, now:] = torch.randint(0, shape.target_vocab, (2, length - now))  # padding too
    with torch.no_grad():
        assert torch.equal(model(source, target)[:, :now], model(source, changed)[:, :now])


def test_the_present_and_the_source_do_change_the_answer():
    """The other tests could not fail if nothing mattered."""
    shape = ModelConfig(source_vocab=11, target_vocab=13, d_model=6, d_ff=7, n_heads=2, encoder_layers=1)
    model = make_model(shape, 0)
    source, target = torch.randint(1, 11, (1, 5)), torch.randint(1, 13, (1, 7))
    other_target, other_source = target.clone(), source.clone()
    other_target[0, 3] = target[0, 3] % 12 + 1
    other_source[0, 2] = source[0, 2] % 10 + 1
    logits = model(source, target)
    assert (logits != model(source, other_target))[:, 3:].any(-1).all()
    assert (logits != model(other_source, target)).any(-1).all()


@several
@given(
    shape=shapes(),
    seed=seeds,
    lengths=lengths,
    more_source=st.integers(0, 27),
    more_target=st.integers(0, 27),
)
def test_padding_and_neighbours_change_nothing(shape, seed, lengths, more_source, more_target):
    model = make_model(shape, seed)
    sources = sentences(shape.source_vocab, [s for s, _ in lengths])
    targets = sentences(shape.target_vocab, [t for _, t in lengths])
    with torch.no_grad():
        batch = model(padded(sources, more_source), padded(targets, more_target))
        for source, target, logits in zip(sources, targets, batch, strict=True):
            close(logits[: len(target)], model(source[None], target[None])[0])


# case T6
@several
@given(shape=shapes(), seed=seeds, lengths=lengths)
def test_padding_changes_no_gradient(shape, seed, lengths):
    model = make_model(shape, seed)
    sources = sentences(shape.source_vocab, [s for s, _ in lengths])
    targets = sentences(shape.target_vocab, [t for _, t in lengths])

    def gradients(extra):
        target = padded(targets, extra)
        rows = (target != PAD).flatten().nonzero().flatten()
        logits = model(padded(sources, extra), target, rows)
        loss = torch.nn.functional.cross_entropy(logits, target.flatten()[rows], reduction="sum")
        return torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)

    for plain, more in zip(gradients(0), gradients(50), strict=True):
        close(plain, more, 1e-9)


@several
@given(shape=shapes(), seed=seeds, lengths=lengths, data=st.data())
def test_order_changes_nothing(shape, seed, lengths, data):
    model = make_model(shape, seed)
    order = data.draw(st.permutations(range(len(lengths))), label="order")
    source = padded(sentences(shape.source_vocab, [s for s, _ in lengths]))
    target = padded(sentences(shape.target_vocab, [t for _, t in lengths]))
    with torch.no_grad():
        close(model(source[order], target[order]), model(source, target)[order])


# cases M10, G13
@several
@given(
    shape=shapes(),
    seed=seeds,
    source_lengths=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    beams=st.integers(1, 3),
    prefix=st.integers(0, 5),
    chunk=st.integers(1, 3),
    chunks=st.integers(1, 4),
    capacity=st.integers(0, 12),
)
def test_the_cache_changes_nothing(shape, seed, source_lengths, beams, prefix, chunk, chunks, capacity):
    """A prefix at once, then chunks of one, two or three tokens, each beam its own."""
    model = make_model(shape, seed, torch.float32)
    source = padded(sentences(shape.source_vocab, source_lengths))
    rows, length = len(source) * beams, prefix + chunk * chunks
    target = torch.randint(1, shape.target_vocab, (rows, length))
    with torch.no_grad():
        expected = model(source.repeat_interleave(beams, 0), target)
        cache = model.start_cache(model.encode(source), beams=beams, capacity=capacity)
        pieces = target.split([size for size in [prefix, *[chunk] * chunks] if size], 1)
        logits = torch.cat([model.step(piece, cache) for piece in pieces], 1)
    assert cache.length == length
    close(logits, expected, 1e-5)


@several
@given(shape=shapes(), seed=seeds, beams=st.integers(1, 4), data=st.data())
def test_hypotheses_reordered_and_closed_and_sentences_left_out(shape, seed, beams, data):
    """Beam search's moves: hypotheses go on from open ones of their sentence, some are closed, sentences leave."""
    model = make_model(shape, seed)
    source = padded(sentences(shape.source_vocab, [3, 7, 5]))
    written = torch.randint(1, shape.target_vocab, (3, beams, 4))
    is_open = torch.ones(3, beams, dtype=torch.bool)
    with torch.no_grad():
        cache = model.start_cache(model.encode(source), beams=beams, capacity=3)
        model.step(written.flatten(0, 1), cache)
        for _ in range(data.draw(st.integers(1, 5), label="steps")):
            origins = torch.rand(is_open.shape).masked_fill(~is_open, -1.0).argsort(-1, descending=True)
            origins = torch.where(is_open.gather(1, origins), origins, origins[:, :1])
            cache.follow(origins)
            written = written.gather(1, origins[:, :, None].expand_as(written))
            if data.draw(st.booleans(), label="sentences leave"):
                places = st.sampled_from(range(len(source)))
                staying = torch.tensor(data.draw(st.lists(places, min_size=1, unique=True), label="staying"))
                cache.keep_sentences(staying)
                source, written = source[staying], written[staying]
            is_open = torch.rand(written.shape[:2]) < 0.6
            is_open[:, data.draw(st.integers(0, beams - 1), label="always open")] = True
            cache.rows = Rows(is_open)
            written = torch.cat([written, torch.randint(1, shape.target_vocab, (*is_open.shape, 1))], 2)
            logits = model.step(cache.rows.gather(written[:, :, -1:]), cache)
            sentence = torch.arange(len(source))[:, None].expand(-1, beams)
            close(logits, model(source[sentence[is_open]], written[is_open])[:, -1:])
