"""Models from elsewhere through the commands and the package: import, generate, score, vectors, fill-mask, export."""

import json
import math

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import clearhead
from clearhead import kernels
from clearhead.cli.app import main
from clearhead.errors import ConfigError, DataError
from clearhead.interchange.hugging_face import write_folder
from clearhead.models.bert import bert_config
from clearhead.models.gpt import gpt2_config
from clearhead.models.llama import llama_config
from clearhead.models.making import make_model
from clearhead.models.transformer import parameter_names
from clearhead.text.control import Control

WORDS = ["the", "a", "dog", "cat", "runs", "sits", "on", "mat", "snow", ".", ",", "in", "and"]


def run(*arguments):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    return caught.value.code or 0


def write_model(path, config, tokenizer, control):
    torch.manual_seed(0)
    model = make_model(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.4)
            if name.endswith("gamma"):
                parameter += 1
    weights = {name: parameter.detach() for name, parameter in parameter_names(model).items()}
    write_folder(path, config, weights, control, None)
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def text_run(request, tmp_path_factory):
    """A run folder of an imported text model, whose tokenizer works on bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={c: i + 2 for i, c in enumerate(alphabet)} | {"<s>": 0, "</s>": 1}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    shape = {"vocabulary": 258, "decoder_layers": 2, "d_model": 16, "d_ff": 24, "max_positions": 64}
    config = (
        gpt2_config(**shape, n_heads=2) if request.param == "gpt2" else llama_config(**shape, n_heads=4, kv_heads=2)
    )
    root = tmp_path_factory.mktemp(request.param)
    write_model(root / "model", config, tokenizer, Control(start=0, end=(1,)))
    assert run("import", root / "model", "--to", root / "run") == 0
    return root / "run"


@pytest.fixture(scope="module")
def bert_run(tmp_path_factory):
    """A run folder of an imported BERT over a few words."""
    vocabulary = {word: id for id, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.enable_padding(length=128)  # some published files say so; it is not ours to follow
    tokenizer.enable_truncation(9)
    config = bert_config(
        vocabulary=len(vocabulary),
        encoder_layers=2,
        d_model=12,
        d_ff=16,
        n_heads=3,
        max_positions=20,
        heads="masked_token",
    )
    root = tmp_path_factory.mktemp("bert")
    write_model(root / "model", config, tokenizer, Control(padding=0))
    assert run("import", root / "model", "--to", root / "run") == 0
    return root / "run"


# cases G12, G13
def test_command_and_package_agree(text_run, capfd, tmp_path):
    prompts = ["The", "a dog, a cat and", "in", "snow on the mat."]
    generator = clearhead.load(text_run, device="cpu")
    assert isinstance(generator, clearhead.TextGenerator)
    expected = generator.generate(prompts, max_new_tokens=12)
    assert expected == [generator.generate(prompt, max_new_tokens=12) for prompt in prompts]
    (tmp_path / "prompts.txt").write_text("".join(f"{prompt}\n" for prompt in prompts))
    capfd.readouterr()
    assert run("generate", text_run, "-i", tmp_path / "prompts.txt", "--max-new-tokens", 12, "--json") == 0
    assert [json.loads(line)["text"] for line in capfd.readouterr().out.splitlines()] == expected
    for prompt, text in zip(prompts, expected, strict=True):
        assert run("generate", text_run, prompt, "--max-new-tokens", 12) == 0
        assert capfd.readouterr().out == text + "\n"


@pytest.mark.skipif(not kernels.has("int16"), reason="this processor has no AVX2")
def test_int16_is_nearly_float32(text_run, bert_run, capfd):
    exact, rounded = (clearhead.load(text_run, device="cpu", precision=name) for name in ("float32", "int16"))
    (one,), (other,) = (generator.continuations(["The"], max_new_tokens=12) for generator in (exact, rounded))
    assert other.ids == one.ids
    assert other.log_probability == pytest.approx(one.log_probability, abs=0.02)
    assert other.log_probability != one.log_probability
    capfd.readouterr()
    assert run("generate", text_run, "The", "--max-new-tokens", 12, "--precision", "int16", "--json") == 0
    assert json.loads(capfd.readouterr().out)["log_probability"] == other.log_probability
    assert run("generate", text_run, "The", "--precision", "int4") == 2
    assert "has to be" in capfd.readouterr().err
    one, other = (clearhead.load(bert_run, device="cpu", precision=name) for name in ("float32", "int16"))
    difference = (one.vectors(["the dog runs"]) - other.vectors(["the dog runs"])).abs().max()
    assert 0 < difference < 0.01


@pytest.mark.parametrize("options", [{}, {"sample": True, "temperature": 3.0}, {"sample": True, "top_k": 9, "seed": 2}])
def test_a_stream_is_the_text_in_pieces(text_run, options):
    generator = clearhead.load(text_run, device="cpu")
    for prompt in ("The", "snow", "ß"):
        whole = generator.generate(prompt, max_new_tokens=40, **options)
        assert "".join(generator.stream(prompt, max_new_tokens=40, **options)) == whole
        for stop in {whole[3:5], whole[10:11], "not there"} - {""}:
            cut = generator.generate(prompt, max_new_tokens=40, stop=[stop], **options)
            assert cut == whole.split(stop)[0]
            assert "".join(generator.stream(prompt, max_new_tokens=40, stop=[stop], **options)) == cut


# case V2
def test_only_a_template_names_control_tokens(text_run):
    generator = clearhead.load(text_run, device="cpu")
    tokenizer = generator.tokenizer
    assert not {0, 1} & set(tokenizer.encode("<s>a</s>"))
    assert tokenizer.encode_in("<s>{}</s>!", "a</s>") == [0, *tokenizer.encode("a</s>"), 1, *tokenizer.encode("!")]
    templated = generator.generate("a", template="<s>{}", max_new_tokens=5, sample=True, temperature=5.0)
    assert templated == "".join(generator.stream("a", template="<s>{}", max_new_tokens=5, sample=True, temperature=5.0))
    with pytest.raises(ConfigError, match=r"has no \{\}"):
        generator.generate("a", template="<s>")


# case G4
def test_scores_are_those_of_generation_and_of_the_plain_sum(text_run, capfd, tmp_path):
    generator = clearhead.load(text_run, device="cpu")
    texts = ["The dog", "a", "snow on the mat, and the cat sits in it; the dog runs. " * 4]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    if generator.model.config.positions == "learned":
        with pytest.raises(DataError, match="text 3 has"):
            generator.score(texts)
        texts = texts[:2]
    for text, score in zip(texts[:2], generator.score(texts)[:2], strict=True):
        ids = torch.tensor([generator.tokenizer.encode(text)])
        with torch.no_grad():
            logits = generator.model(ids)[0, :-1].double()
        expected = float(logits.log_softmax(-1).gather(1, ids[0, 1:, None]).sum())
        assert score.log_probability == pytest.approx(expected, abs=1e-4)
        assert score.tokens == ids.size(1) - 1
    (tmp_path / "two.txt").write_text("".join(f"{text}\n" for text in texts[:1]))
    capfd.readouterr()
    assert run("score", text_run, "--text", tmp_path / "two.txt") == 0
    total, tokens, perplexity = capfd.readouterr().out.split("\t")
    assert float(perplexity) == pytest.approx(math.exp(-float(total) / int(tokens)), rel=1e-3)


def test_vectors_are_means_of_states(bert_run, capfd):
    encoder = clearhead.load(bert_run, device="cpu")
    assert isinstance(encoder, clearhead.TextEncoder)
    texts = ["the dog runs in the snow and sits on a mat .", "a cat", "", "The DOG", "the dog"]
    vectors = encoder.vectors(texts)
    for text, vector in zip(texts, vectors, strict=True):
        ids = torch.tensor([encoder.tokenizer.encode(text)])
        assert ids[0, 0] == 2
        assert ids[0, -1] == 3
        with torch.no_grad():
            torch.testing.assert_close(vector, encoder.model(ids)[0].mean(0), rtol=1e-5, atol=1e-5)
    cosines = encoder.similarities(texts[3:])
    torch.testing.assert_close(cosines, torch.ones(2, 2))
    assert encoder.vectors([]).shape == (0, 12)
    capfd.readouterr()
    assert run("vectors", bert_run, "the dog", "a cat", "--json") == 0
    printed = torch.tensor([json.loads(line) for line in capfd.readouterr().out.splitlines()])
    torch.testing.assert_close(printed, encoder.vectors(["the dog", "a cat"]))


def test_a_text_that_is_too_long_is_cut(bert_run):
    encoder = clearhead.load(bert_run, device="cpu")
    long = "the dog runs " * 30
    torch.testing.assert_close(encoder.vectors([long]), encoder.vectors([" ".join(long.split()[:18])]))


def test_masks_are_filled(bert_run, capfd):
    encoder = clearhead.load(bert_run, device="cpu")
    found = encoder.fill_mask("the [MASK] runs [MASK] [SEP] .", n_best=3)
    ids = encoder.tokenizer.encode_masked("the [MASK] runs [MASK] [SEP] .")
    assert ids[0] == 2
    assert ids.count(4) == 2
    assert ids.count(3) == 1  # the one at the end: what a text says is text
    with torch.no_grad():
        logits = encoder.model.masked_token_logits(encoder.model(torch.tensor([ids])))[0]
    for place, guesses in zip([i for i, id in enumerate(ids) if id == 4], found, strict=True):
        best = logits[place].softmax(-1).sort(descending=True)
        assert [guess.token for guess in guesses] == encoder.tokenizer.tokens(best.indices[:3].tolist())
        assert [guess.probability for guess in guesses] == pytest.approx(best.values[:3].tolist())
    with pytest.raises(DataError, match="nothing is masked"):
        encoder.fill_mask("the dog")
    capfd.readouterr()
    assert run("fill-mask", bert_run, "a [MASK] .", "--n-best", 2) == 0
    assert len(capfd.readouterr().out.splitlines()) == 2


def test_a_model_of_another_kind_is_named(text_run, bert_run, capfd):
    for arguments in (
        ("generate", bert_run, "a"), ("vectors", text_run, "a"), ("fill-mask", text_run, "a [MASK]"),
        ("translate", text_run, "a"),
    ):  # fmt: skip
        assert run(*arguments) == 2
        assert "holds a" in capfd.readouterr().err


def test_info_and_export(text_run, capfd, tmp_path):
    capfd.readouterr()
    assert run("info", text_run, "--json") == 0
    described = json.loads(capfd.readouterr().out)
    assert described["training"]["reason"] == "imported"
    assert described["vocabulary"]["source"]["tokens"] == 258
    assert run("export", text_run, "-o", tmp_path / "out") == 0
    assert run("import", tmp_path / "out", "--to", tmp_path / "again") == 0
    one, other = (clearhead.load(path, device="cpu") for path in (text_run, tmp_path / "again"))
    assert one.generate("The", max_new_tokens=9) == other.generate("The", max_new_tokens=9)
    assert run("export", text_run, "-o", tmp_path / "out") == 2
    assert run("export", text_run, "-o", tmp_path / "other", "--family", "bert") == 2
