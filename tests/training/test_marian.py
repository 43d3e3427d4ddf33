"""A Marian model with its SentencePiece tokenizers, imported and trained on: `[model] start_from`."""

import shutil

import pytest
import torch

import clearhead
from clearhead.interchange.importing import export_model, import_model
from clearhead.recipe import make_recipe
from clearhead.run_folder import RunFolder
from clearhead.training.run import train

SOURCES = ["a cat", "a dog", "the cat", "the dog", "a red cat", "the red dog", "the cat runs", "a dog sleeps"]
TARGETS = [
    "eine Katze", "ein Hund", "die Katze", "der Hund", "eine rote Katze", "der rote Hund", "die Katze rennt",
    "ein Hund schläft",
]  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore")  # those of transformers are not ours to mend


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="the reference is the transformers library")


@pytest.fixture(scope="module")
def folder(transformers, marian_tokenizers, tmp_path_factory):
    """As `save_pretrained` writes them: a model with random weights, and its tokenizers."""
    files = marian_tokenizers(SOURCES, TARGETS)
    path = tmp_path_factory.mktemp("hf")
    names = (str(files / name) for name in ("source.spm", "target.spm", "vocab.json"))
    tokenizer = transformers.MarianTokenizer(*names)
    size = len(tokenizer)
    config = transformers.MarianConfig(
        vocab_size=size, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, scale_embedding=True, dropout=0.0,
        activation_function="swish", pad_token_id=size - 1, decoder_start_token_id=size - 1, eos_token_id=0,
        forced_eos_token_id=0, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.MarianMTModel(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def tuned(folder, tmp_path):
    """`tuned("run", updates=3)`: the imported model, trained on."""
    origin = import_model(folder, tmp_path / "imported").path
    (tmp_path / "pairs.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in zip(SOURCES, TARGETS, strict=True)))
    pairs = {"pairs": str(tmp_path / "pairs.tsv")}

    def tune(name="run", *, resume=False, **training) -> RunFolder:
        options = {"warmup": 20, "validate_every": 50, "batch_tokens": 64, "device": "cpu", "threads": 1, "average": 0}
        tables = {
            "run": {"dir": str(tmp_path / name)},
            "data": {"train": pairs, "valid": pairs, "max_length": 32},
            "model": {"start_from": str(origin)},
            "training": {**options, "peak_rate": 3e-3, **training},
        }
        return train(make_recipe(tables), resume=resume).folder

    return tune


def test_before_it_learns_its_loss_is_that_of_transformers(transformers, folder, tuned):
    run = tuned(updates=1, peak_rate=1e-30)
    model = transformers.MarianMTModel.from_pretrained(folder).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    total = tokens = 0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        batch = tokenizer(source, text_target=target, return_tensors="pt")
        count = batch["labels"].size(1)
        total, tokens = total + model(**batch).loss.item() * count, tokens + count
    (found,) = (record["loss"] for record in run.read_metrics() if record["event"] == "validation")
    assert found == pytest.approx(total / tokens, rel=1e-5)


def test_it_learns_and_transformers_can_have_it_back(transformers, tuned, tmp_path):
    run = tuned(updates=350)
    assert clearhead.load(run.path, device="cpu").translate(SOURCES) == TARGETS
    exported = export_model(run.path, tmp_path / "out")
    model = transformers.MarianMTModel.from_pretrained(exported).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(exported)
    ids = model.generate(
        **tokenizer(SOURCES, return_tensors="pt", padding=True), num_beams=1, do_sample=False, max_length=16,
        bad_words_ids=[[tokenizer.pad_token_id]],
    )  # fmt: skip
    assert tokenizer.batch_decode(ids, skip_special_tokens=True) == TARGETS


def test_the_smoothed_loss_is_hardly_more_for_the_start_token(tuned):
    """Label smoothing asks a share of every token, of the one too whose bias says never."""
    run = tuned(updates=2, log_every=1)
    first = next(record for record in run.read_metrics() if record["event"] == "training")
    assert first["loss"] < 6  # a model that knows nothing: the logarithm of some 40 tokens, 3.7


def test_a_stopped_one_is_gone_on_with_when_what_it_began_with_is_gone(tuned, tmp_path):
    whole, parts = tuned("whole", updates=9), tuned("parts", updates=4)
    shutil.move(tmp_path / "imported", tmp_path / "elsewhere")
    tuned("parts", updates=9, resume=True)
    assert parts.model.read_bytes() == whole.model.read_bytes()
