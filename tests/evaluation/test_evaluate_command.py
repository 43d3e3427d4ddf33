"""`clearhead evaluate`, on a small run trained here, and on files of outputs."""

import json
import math
import re
from pathlib import Path

import pytest
import torch

from clearhead import kernels
from clearhead.cli.app import main
from clearhead.decoding.translator import load
from clearhead.recipe import make_recipe
from clearhead.text.batches import collate
from clearhead.training.run import train

WORDS = ["ab", "ba", "abba", "baab", "aab", "bba", "abab", "bb", "aa", "b"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learns a little of spelling words out; its validation set repeats a source."""
    folder = tmp_path_factory.mktemp("evaluate")
    pairs = [f"{word}\t{' '.join(word.upper())}" for word in WORDS]
    (folder / "train.tsv").write_text("\n".join(pairs * 5) + "\n")
    (folder / "valid.tsv").write_text("\n".join([*pairs[:6], "ab\tB A"]) + "\n")
    recipe = {
        "run": {"dir": str(folder / "run")},
        "data": {
            "root": str(folder),
            "train": {"pairs": "train.tsv"},
            "valid": {"pairs": "valid.tsv"},
            "max_length": 16,
        },
        "tokenizer": {"source": {"kind": "char"}, "target": {"kind": "word"}},
        "model": {"d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1},
        "training": {
            "updates": 40,
            "batch_tokens": 128,
            "peak_rate": 0.01,
            "warmup": 5,
            "validate_every": 40,
            "average": 0,
        },
        "decoding": {"beam_size": 2},
    }
    train(make_recipe(recipe))
    return folder / "run"


def command(*arguments: object) -> int:
    """The exit code of `clearhead evaluate …`."""
    with pytest.raises(SystemExit) as left:
        main(["evaluate", *map(str, arguments)])
    code = left.value.code
    return code if isinstance(code, int) else 0


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    """What `clearhead evaluate … --json` prints."""
    assert command(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_the_validation_set_is_the_default(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = answer(capsys, run)
    assert report["sentences"] == 6  # of 7 lines: the repeated source is one test with two right answers
    assert report["wer"] == pytest.approx(100 - report["exact_match"])
    names = "exact_match bleu chrf2 chrf2pp ter wer per cer loss perplexity sentences signatures"
    assert list(report) == names.split()


def test_loss_is_that_of_every_reference_with_its_end_token(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = answer(capsys, run, "--metrics", "wer")
    translator = load(run, device="cpu")
    total, tokens = 0.0, 0
    for line in (run.parent / "valid.tsv").read_text().splitlines():
        source, target = line.split("\t")
        ids = translator.source_tokenizer.encode(source), translator.target_tokenizer.encode(target)
        batch = collate([ids])
        with torch.no_grad():
            logits = translator.model(batch.source, batch.decoder_input)
        total += torch.nn.functional.cross_entropy(logits[0].double(), batch.labels[0], reduction="sum").item()
        tokens += len(target.split()) + 1
    assert report["loss"] == pytest.approx(total / tokens, rel=1e-5)
    assert report["perplexity"] == pytest.approx(math.exp(total / tokens), rel=1e-4)


def test_saved_outputs_are_those_measured(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "out.txt"
    decoded = answer(capsys, run, "--save-outputs", saved, "--beam-size", 1)
    outputs = saved.read_text(encoding="utf-8").splitlines()
    assert outputs == load(run, device="cpu").translate(WORDS[:6], beam_size=1)
    again = answer(capsys, run, "--outputs", saved)
    del decoded["loss"], decoded["perplexity"]  # nothing was decoded the second time, so no model was asked
    assert again == decoded


@pytest.mark.skipif(not kernels.has("int16"), reason="this processor has no AVX2")
def test_precision_is_that_of_the_model_measured(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rounded weights have nearly the loss, and not the very one."""
    exact, rounded = (answer(capsys, run, "--precision", name)["loss"] for name in ("float32", "int16"))
    assert rounded == pytest.approx(exact, abs=1e-2)
    assert rounded != exact
    assert command(run, "--precision", "int4") == 2
    assert "int4" in capsys.readouterr().err


def test_outputs_need_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = write(tmp_path / "out", "a b", "c d")
    references = [write(tmp_path / "r1", "a b", "c e"), write(tmp_path / "r2", "x", "c d")]
    both = [argument for path in references for argument in ("--reference", path)]
    assert answer(capsys, "--outputs", outputs, *both)["exact_match"] == 100.0
    assert answer(capsys, "--outputs", outputs, *both[:2])["exact_match"] == 50.0
    report = answer(capsys, "--outputs", outputs, *both[:2], "--metrics", "per", "--separator", "")
    assert report["per"] == pytest.approx(100 / 6)  # one of six characters


def test_several_references_in_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = write(tmp_path / "words.ref", "read\tR EH D\tR IY D", "lead\tL EH D")
    outputs = write(tmp_path / "out", "R IY D", "L IY D")
    report = answer(capsys, "--pairs", pairs, "--references-in-columns", "--outputs", outputs)
    assert (report["wer"], report["sentences"]) == (50.0, 2)


def test_comparison_with_a_file_and_with_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    perfect = write(tmp_path / "perfect", *(" ".join(word.upper()) for word in WORDS[:6]))
    report = answer(capsys, run, "--compare", perfect, "--draws", 50)
    assert report["comparison"]["exact_match"]["second"] == 100.0
    assert report["comparison"]["exact_match"]["first"] == report["exact_match"]
    report = answer(capsys, run, "--compare", run, "--draws", 50, "--metrics", "exact_match,bleu")
    assert set(report["comparison"]) == {"exact_match", "bleu"}
    assert {result["p_value"] for result in report["comparison"].values()} == {1.0}


def test_the_table(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    perfect = write(tmp_path / "perfect", *(" ".join(word.upper()) for word in WORDS[:6]))
    assert command(run, "--compare", perfect, "--draws", 50) == 0
    printed = capsys.readouterr().out
    for text in ("exact match", "PER", "perplexity", "BLEU signature: nrefs:", "Paired bootstrap, 50 draws"):
        assert text in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a run folder"),
        (["--outputs", "OUT"], "measured against"),
        (["nowhere", "--pairs", "PAIRS"], "nowhere: no such run folder"),
        (["RUN", "--source", "OUT"], "--reference FILE"),
        (["RUN", "--pairs", "PAIRS", "--source", "OUT"], "either --pairs or --source"),
        (["RUN", "--pairs", "PAIRS", "--metrics", "bluu"], "did you mean 'bleu'"),
        (["RUN", "--pairs", "PAIRS", "--tokenize", "moses"], "no BLEU tokenizer 'moses'"),
        (["RUN", "--pairs", "PAIRS", "--beam-size", "0"], "beam_size = 0"),
        (["RUN", "--pairs", "PAIRS", "--outputs", "OUT"], "out has 1 lines but .*pairs.tsv has 2"),  # case D2
        (["RUN", "--pairs", "PAIRS", "--compare", "missing.txt"], "missing.txt: no such file"),
        (["RUN", "--reference", "OUT"], "--source FILE"),
        (["RUN", "--references-in-columns"], "--pairs"),
        (["RUN", "--pairs", "OUT", "--references-in-columns"], "out, line 1: no tab"),
        (["RUN", "--pairs", "LATIN"], "latin.tsv, line 1: byte 0xe9"),  # case D7
    ],
)
def test_mistakes_end_with_code_2_and_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (tmp_path / "latin.tsv").write_bytes(b"caf\xe9\tx\n")
    places = {
        "RUN": run,
        "OUT": write(tmp_path / "out", "a"),
        "PAIRS": write(tmp_path / "pairs.tsv", "ab\tA B", "ba\tB A"),
        "LATIN": tmp_path / "latin.tsv",
    }
    assert command(*(places.get(argument, argument) for argument in arguments)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("clearhead: error: ")
    assert "Traceback" not in printed.err
    assert re.search(message, printed.err)


def test_validation_data_that_has_gone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = run.parent / "valid.tsv"
    aside = place.rename(place.with_suffix(".aside"))
    try:
        assert command(run) == 2
    finally:
        aside.rename(place)
    assert "valid.tsv: no such file" in capsys.readouterr().err
