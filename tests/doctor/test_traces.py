"""What the doctor sees of attention and of a loss, beside what is known of them."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearhead.config import ModelConfig
from clearhead.doctor.attention_trace import trace_attention
from clearhead.doctor.examination import Examination
from clearhead.doctor.loss_trace import sentences, trace_loss
from clearhead.doctor.mistakes import textbook
from clearhead.inspection.recording import record_attention
from clearhead.models.transformer import Transformer


def test_weights_equal_those_that_our_own_recorder_sees():
    torch.manual_seed(0)
    shape = {"d_model": 20, "d_ff": 14, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    model = Transformer(ModelConfig(source_vocab=19, target_vocab=17, **shape)).eval()
    source, ids = torch.randint(4, 17, (3, 7)), torch.randint(4, 17, (3, 5))
    source[0, 4:] = 0
    with record_attention(model) as maps:
        model(source, ids)
    with trace_attention(model) as trace:
        model(source, ids)
    assert len(trace.calls) == 6
    for call in trace.calls:
        (expected,) = [weights for path, weights in maps.items() if call.path == f"{path}.attention"]
        torch.testing.assert_close(call.weights, expected)
        assert call.width == 10
        assert math.isclose(call.factor, 10**-0.5, rel_tol=1e-6)


def attend_by_einsum(query, key, value):
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) * query.size(-1) ** -0.5
    return torch.einsum("bhqk,bkhd->bqhd", F.softmax(scores, dim=3), value)


def attend_by_tensor_scale(query, key, value):
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    scores = torch.matmul(query, key.transpose(-2, -1)) / torch.sqrt(torch.tensor(float(query.size(-1))))
    return torch.softmax(scores, -1) @ value


def attend_fused(query, key, value):
    return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (query, key, value)))


@pytest.mark.parametrize("attend", [attend_by_einsum, attend_by_tensor_scale, attend_fused])
def test_the_scale_is_seen_however_attention_is_written(attend):
    class Model(nn.Module):
        def forward(self, query, key, value):
            return attend(query, key, value)

    x = torch.randn(2, 5, 3, 7)
    with trace_attention(model := Model()) as trace:
        model(x, x, x)
    (call,) = trace.calls
    assert math.isclose(call.factor, 7**-0.5, rel_tol=1e-6)
    scores = torch.einsum("bqhd,bkhd->bhqk", x, x) * 7**-0.5
    torch.testing.assert_close(call.weights, scores.softmax(-1))
    assert "test_traces.py" in call.line


def test_multihead_attention_is_seen_with_its_mask():
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(14, 2, batch_first=True).eval()
    x = torch.randn(3, 5, 14)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    with trace_attention(attention) as trace:
        attention(x, x, x, attn_mask=later, need_weights=False)
    (call,) = trace.calls
    assert math.isclose(call.factor, 7**-0.5, rel_tol=1e-6)
    _, expected = attention(x, x, x, attn_mask=later, average_attn_weights=False)
    torch.testing.assert_close(call.by_row(3), expected.detach())


@pytest.mark.parametrize("smoothing", [0.0, 0.15])
def test_a_loss_is_read_off_its_gradient(smoothing):
    """The distribution that torch's own smoothed cross-entropy asks for, by its documented formula."""

    def loss(model, source, target):
        logits = model(source, target[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0, label_smoothing=smoothing)

    examination = Examination(textbook.patient(loss=loss))
    source, target = sentences(examination)
    trace = trace_loss(examination, source, target)
    labels, size = target[:, 1:], textbook.VOCABULARY
    real = labels != 0
    expected = (1 - smoothing) * F.one_hot(labels, size).double() + smoothing / size
    torch.testing.assert_close(trace.wanted[real], expected[real], atol=1e-6, rtol=0)
    torch.testing.assert_close(trace.weights, real.double() / real.sum(), atol=1e-9, rtol=0)
    assert torch.equal(trace.given, target[:, :-1])


def test_a_loss_of_log_probabilities_is_read_too():
    class LogProbabilities(textbook.Textbook):
        def forward(self, source, ids):
            return super().forward(source, ids).log_softmax(-1)

    def loss(model, source, target):
        return F.nll_loss(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)

    examination = Examination(textbook.patient(LogProbabilities, loss=loss))
    source, target = sentences(examination)
    trace = trace_loss(examination, source, target)
    assert torch.equal(trace.labels, target[:, 1:].masked_fill(target[:, 1:] == 0, -1))
