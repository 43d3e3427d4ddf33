"""Whole models beside those of `transformers` with the same random weights: logits, and the states of every layer."""

import pytest
import torch

from clearhead.interchange.hugging_face import read_folder
from clearhead.models.making import make_model_of
from clearhead.text.marian import vocabulary_order

VOCABULARY = 37


def ours_of(path):
    model = read_folder(path)
    return make_model_of(model.config, model.weights, origin=str(path)).eval(), model


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def states_of(stacks):
    """Collects what every layer of the stacks gives."""
    found = []
    for stack in stacks:
        for layer in stack.layers:
            layer.register_forward_hook(lambda module, inputs, output: found.append(output))
    return found


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt2", "llama default", "llama another base", "llama linear", "llama llama3"])
def test_text_models(folder_of, name):
    path, theirs = folder_of(name)
    ours, _ = ours_of(path)
    ids = torch.randint(0, VOCABULARY, (3, 31), generator=torch.Generator().manual_seed(0))
    expected, states = theirs(ids, output_hidden_states=True), states_of([ours.decoder])
    close(ours(ids), expected.logits)
    for found, their in zip(states[:-1], expected.hidden_states[1:-1], strict=True):
        close(found, their)
    close(ours.decoder.norm(states[-1]), expected.hidden_states[-1])


@torch.no_grad()
@pytest.mark.parametrize("head", ["BertForMaskedLM", "BertForPreTraining", "BertModel"])
@pytest.mark.parametrize("padded", [False, True])
def test_bert(folder_of, head, padded):
    path, theirs = folder_of(f"bert {head}")
    ours, _ = ours_of(path)
    ids = torch.randint(0, VOCABULARY, (3, 31), generator=torch.Generator().manual_seed(0))
    segments = (torch.arange(31) > torch.tensor([[12], [0], [30]])).long()
    real = (torch.arange(31) < torch.tensor([[31], [7], [20]])).long() if padded else torch.ones_like(ids)
    expected = theirs(ids, attention_mask=real, token_type_ids=segments, output_hidden_states=True)
    states = states_of([ours.encoder])
    last = ours(ids, real if padded else None, segments)
    for found, their in zip(states, expected.hidden_states[1:], strict=True):
        close(found[real.bool()], their[real.bool()])
    if head == "BertModel":
        close(ours.pooled(last), expected.pooler_output)
    else:
        logits = expected.logits if head == "BertForMaskedLM" else expected.prediction_logits
        close(ours.masked_token_logits(last)[real.bool()], logits[real.bool()])


def in_our_order(ids, order):
    """Their ids as ours; padding, which is also their start token, becomes padding."""
    places = {theirs: ours for ours, theirs in reversed(list(enumerate(order)))}
    return torch.tensor([[places[id] for id in row] for row in ids.tolist()])


@torch.no_grad()
def test_marian(folder_of):
    path, theirs = folder_of("marian")
    ours, read = ours_of(path)
    order = vocabulary_order(read.control, VOCABULARY)
    random = torch.Generator().manual_seed(0)
    source, target = (torch.randint(2, 36, (3, length), generator=random) for length in (13, 9))
    source[1, 5:], target[:, 0] = 36, 36
    own_target = in_our_order(target, order)
    own_target[:, 0] = 1
    states = states_of([ours.encoder, ours.decoder])
    expected = theirs(
        input_ids=source, attention_mask=source != 36, decoder_input_ids=target, output_hidden_states=True
    )
    logits = ours(in_our_order(source, order), own_target)
    real = source != 36
    for found, their in zip(states[:2], expected.encoder_hidden_states[1:], strict=True):
        close(found[real], their[real])
    for found, their in zip(states[2:], expected.decoder_hidden_states[1:], strict=True):
        close(found, their)
    tokens = [place for place in range(VOCABULARY + 1) if place != 1]  # all but the start token of ours
    close(logits[..., tokens], expected.logits[..., [order[place] for place in tokens]])
    # The start token takes no part of the probability.
    close(logits.logsumexp(-1), expected.logits.logsumexp(-1))
