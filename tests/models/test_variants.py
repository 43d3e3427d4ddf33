"""GPT, BERT, LLaMA and Marian: of the published size, free of leaks, and stepping gives what the whole gives."""

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, RunError
from clearhead.inspection.recording import record_attention
from clearhead.models.bert import BERT, bert_config
from clearhead.models.gpt import GPT, gpt2_config
from clearhead.models.llama import llama_config
from clearhead.models.making import count_parameters, make_model, make_model_of, map_model
from clearhead.models.marian import marian_config
from clearhead.models.transformer import Transformer, parameter_names
from clearhead.training.checkpoints import save_weights_atomically

SMALL = {"vocabulary": 31, "decoder_layers": 3, "d_model": 24, "d_ff": 17, "n_heads": 6}
CONFIGS = {
    "gpt": gpt2_config(**{**SMALL, "n_heads": 3}, max_positions=40, dropout=0.1),
    "gpt with sinusoids": gpt2_config(**{**SMALL, "n_heads": 3}, positions="sinusoids", embedding="scaled"),
    "llama": llama_config(**SMALL, kv_heads=2),
    "llama, one key head, tied": llama_config(**SMALL, kv_heads=1, tied="output"),
}
TEXT_MODELS = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def randomized(config):
    """No parameter keeps a value that could hide its absence."""
    torch.manual_seed(0)
    model = make_model(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.3)
            if name.endswith("gamma"):
                parameter += 1
    return model.eval()


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (gpt2_config(), 124_439_808),
        (gpt2_config("gpt2-xl"), 1_557_611_200),
        (bert_config(), 108_891_648),
        (llama_config(), 6_738_415_616),
        (llama_config("llama-2-70b"), 68_976_648_192),
        (llama_config("llama-3.1-8b"), 8_030_261_248),
        (llama_config("smollm2-135m"), 134_515_008),
    ],
)
def test_models_have_their_published_sizes(config, count):
    assert count_parameters(config) == count


def test_each_architecture_has_its_class():
    assert isinstance(make_model(CONFIGS["gpt"]), GPT)
    assert isinstance(make_model(bert_config(vocabulary=7, d_model=4, d_ff=3, n_heads=2)), BERT)
    small = marian_config(vocabulary=7, d_model=4, d_ff=3, n_heads=2)
    assert isinstance(make_model(small), Transformer)
    for wrong, config in ((Transformer, CONFIGS["gpt"]), (GPT, small), (BERT, small)):
        with pytest.raises(ConfigError, match="architecture = "):
            wrong(config)


@TEXT_MODELS
@pytest.mark.parametrize("chunks", [1, 2, [5, 1, 6], 12])  # case M10
def test_steps_equal_the_whole(config, chunks):
    model, ids = randomized(config), torch.randint(0, 31, (3, 12))
    cache = model.start_cache(3, capacity=4)
    close(torch.cat([model.step(piece, cache) for piece in ids.split(chunks, 1)], 1), model(ids))


@TEXT_MODELS
def test_prompts_of_different_lengths_do_not_see_their_padding(config):  # case G13
    model, lengths = randomized(config), torch.tensor([9, 1, 4])
    prompts, more = torch.randint(0, 31, (3, 9)), torch.randint(0, 31, (3, 5))
    cache = model.start_cache(3, capacity=4)
    first = model.start(prompts, lengths, cache)
    later = torch.cat([model.step(piece, cache) for piece in more.split([1, 1, 3], 1)], 1)
    for row, length in enumerate(lengths.tolist()):
        alone = model(torch.cat([prompts[row, :length], more[row]])[None])[0]
        close(first[row], alone[length - 1])
        close(later[row], alone[length:])


@TEXT_MODELS
def test_hypotheses_share_their_prompt(config):  # case G2
    model, lengths = randomized(config), torch.tensor([2, 6])
    prompts, more = torch.randint(0, 31, (2, 6)), torch.randint(0, 31, (2, 3, 4))
    cache = model.start_cache(2, capacity=4)
    model.start(prompts, lengths, cache)
    cache.fan_out(3)
    written = more[:, :, :2]
    for column in range(2):
        model.step(written[:, :, column].flatten()[:, None], cache)
    origins = torch.tensor([[2, 0, 0], [1, 1, 2]])
    cache.follow(origins)
    written = written.gather(1, origins[:, :, None].expand(-1, -1, 2))
    logits = model.step(more[:, :, 3].flatten()[:, None], cache)[:, 0].unflatten(0, (2, 3))
    for row, length in enumerate(lengths.tolist()):
        for beam in range(3):
            text = torch.cat([prompts[row, :length], written[row, beam], more[row, beam, 3:]])
            close(logits[row, beam], model(text[None])[0, -1])


@TEXT_MODELS
def test_no_position_sees_a_later_one(config):  # case M4
    model, ids = randomized(config), torch.randint(0, 31, (2, 11))
    changed = ids.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 31
    before, after = model(ids), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert (before[:, 7:] != after[:, 7:]).any(-1).all()


@TEXT_MODELS
def test_attention_is_recorded_without_changing_anything(config):  # cases I1, I2
    model, ids = randomized(config), torch.randint(0, 31, (2, 7))
    plain = model(ids)
    with record_attention(model) as maps:
        assert torch.equal(model(ids), plain)
    assert list(maps) == [f"decoder.layers.{number}.self_attention" for number in range(3)]
    for weights in maps.values():
        assert weights.shape == (2, config.n_heads, 7, 7)
        assert not weights.triu(1).any()
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, config.n_heads, 7))


@TEXT_MODELS
def test_untrained_loss_is_that_of_guessing(config):  # case T8
    torch.manual_seed(0)
    ids = torch.randint(0, 31, (32, 20))
    loss = torch.nn.functional.cross_entropy(make_model(config)(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert float(loss.detach()) == pytest.approx(torch.tensor(31.0).log().item(), abs=0.25)


def test_bert_does_not_see_padding():  # case M1
    model = randomized(bert_config(vocabulary=31, d_model=12, d_ff=7, n_heads=3, max_positions=20, heads="both"))
    ids, real = torch.randint(0, 31, (3, 9)), torch.arange(9) < torch.tensor([[9], [4], [1]])
    states = model(ids, real)
    for row, length in enumerate((9, 4, 1)):
        alone = model(ids[row : row + 1, :length])
        close(states[row, :length], alone[0])
        close(model.pooled(states)[row], model.pooled(alone)[0])
    assert not torch.allclose(model(ids, real, torch.ones_like(ids)), states, atol=1e-3)
    assert model.masked_token_logits(states).shape == (3, 9, 31)


def test_a_head_that_is_not_there_is_named():
    model = make_model(bert_config(vocabulary=31, d_model=12, d_ff=7, n_heads=3))
    for use in (model.pooled, model.masked_token_logits):
        with pytest.raises(ConfigError, match="this model has no"):
            use(torch.zeros(1, 2, 12))


@pytest.mark.parametrize(
    "config",
    [
        *CONFIGS.values(),
        bert_config(vocabulary=31, d_model=12, d_ff=7, n_heads=3, heads="both"),
        marian_config(vocabulary=31, d_model=12, d_ff=7, n_heads=3),
    ],
)
def test_a_mapped_model_is_the_saved_one(tmp_path, config):
    model = randomized(config)
    save_weights_atomically(model, tmp_path / "model.safetensors")
    mapped = map_model(ModelConfig.from_dict(config.to_dict()), tmp_path / "model.safetensors").eval()
    ids = torch.randint(4, 31, (2, 6))
    inputs = (ids, ids) if isinstance(model, Transformer) else (ids,)
    assert torch.equal(mapped(*inputs), model(*inputs))
    assert parameter_names(mapped).keys() == parameter_names(model).keys()  # so what was tied still is


def test_weights_of_another_model_are_refused():
    weights = dict(randomized(CONFIGS["gpt"]).named_parameters())
    with pytest.raises(RunError, match="is of another model"):
        make_model_of(CONFIGS["llama"], weights, origin="here")
