"""Decoding step by step with the cache: situations in which it went wrong elsewhere."""

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.models.transformer import Transformer

BOS = 1


@pytest.fixture(params=["post", "pre"])
def model(request):
    torch.manual_seed(0)
    model = Transformer(
        ModelConfig(
            source_vocab=11,
            target_vocab=13,
            d_model=14,
            d_ff=17,
            n_heads=2,
            encoder_layers=2,
            decoder_layers=3,
            norm_position=request.param,
        )
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


def stepwise(model, source, target, chunks, *, beams=1):
    with torch.inference_mode():
        cache = model.start_cache(model.encode(source), beams=beams, capacity=4)
        return torch.cat([model.step(piece, cache) for piece in target.split(chunks, 1)], 1)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


# case M10
@pytest.mark.parametrize("chunks", [1, 2, 3, [5, 1, 6], [1, 11], [4, 3, 3, 2], 12])
def test_chunks_of_any_size_equal_the_whole(model, chunks):
    source, target = torch.randint(3, 11, (3, 7)), torch.randint(3, 13, (3, 12))
    close(stepwise(model, source, target, chunks), model(source, target))


# case G2
def test_each_beam_looks_at_its_own_source(model):
    source = torch.tensor([[3, 3, 3, 3], [7, 7, 0, 0], [9, 4, 9, 0]])
    target = torch.randint(3, 13, (1, 6)).expand(12, 6)  # the same text for all: only the source tells them apart
    logits = stepwise(model, source, target, 1, beams=4)
    for sentence in range(3):
        length = (source[sentence] != 0).sum()
        alone = model(source[sentence : sentence + 1, :length], target[:1])[0]
        for beam in range(4):
            close(logits[sentence * 4 + beam], alone)
    assert not torch.allclose(logits[0], logits[4], atol=1e-2)


# case G13
def test_prefixes_of_any_length_continue_as_without_a_cache(model):
    source, target = torch.randint(3, 11, (1, 7)), torch.randint(3, 13, (1, 13))
    for prefix in (1, 4, 9):
        close(stepwise(model, source, target, [prefix, *[1] * (13 - prefix)]), model(source, target))


# case S3
def test_decoding_runs_past_the_table_of_positions(model):
    source, target = torch.randint(3, 11, (1, 5)), torch.randint(3, 13, (1, 516))
    logits = stepwise(model, source, target, [510, 1, 1, 1, 2, 1])
    close(logits, model(source, target))


# case M7
def test_a_free_run_has_the_score_that_teacher_forcing_gives_it(model):
    source = torch.tensor([[3, 4, 5, 6, 2], [7, 8, 2, 0, 0], [9, 2, 0, 0, 0]])
    written, score = torch.full((3, 1), BOS), torch.zeros(3)
    with torch.inference_mode():
        cache = model.start_cache(model.encode(source))
        for _ in range(9):
            best, token = model.step(written[:, -1:], cache)[:, -1].log_softmax(-1).max(-1)
            written, score = torch.cat([written, token[:, None]], 1), score + best
        read = model(source, written[:, :-1]).log_softmax(-1)
    assert torch.equal(read.argmax(-1), written[:, 1:])
    close(read.gather(-1, written[:, 1:, None]).sum((1, 2)), score)


# section 4 of the architecture: no state on modules between calls
def test_two_decodings_at_once_do_not_meet(model):
    sources, targets = torch.randint(3, 11, (2, 1, 7)), torch.randint(3, 13, (2, 1, 6))
    with torch.inference_mode():
        caches = [model.start_cache(model.encode(source)) for source in sources]
        steps = [[], []]
        for position in range(6):
            for which in (0, 1):
                steps[which].append(model.step(targets[which][:, position : position + 1], caches[which]))
        model(sources[0], targets[1])
    for which in (0, 1):
        close(torch.cat(steps[which], 1), model(sources[which], targets[which]))


def test_the_source_is_projected_once(model):
    """Keys and values of the source belong to the sentence: they are neither repeated for beams nor made anew."""
    source = torch.randint(3, 11, (2, 7))
    with torch.inference_mode():
        cache = model.start_cache(model.encode(source), beams=3)
        before = [(layer.memory_key, layer.memory_value) for layer in cache.layers]
        for _ in range(3):
            model.step(torch.randint(3, 13, (6, 1)), cache)
    for layer, (key, value) in zip(cache.layers, before, strict=True):
        assert layer.memory_key is key
        assert layer.memory_value is value
        assert key.size(0) == 2
