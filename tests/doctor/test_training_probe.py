"""The checks that train, where the training's own rates come from a function and not from a scheduler."""

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.doctor.catalogue import run_checks
from clearhead.doctor.examination import Examination
from clearhead.doctor.loss_trace import sentences
from clearhead.doctor.mistakes import textbook
from clearhead.doctor.run_patient import clearhead_patient
from clearhead.doctor.training_probe import memorised, ten_examples
from clearhead.recipe import TrainingSection


def test_a_constant_rate_that_works_needs_no_warmup():
    shape = {"d_model": 32, "d_ff": 64, "n_heads": 4, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    config = ModelConfig(source_vocab=24, target_vocab=24, norm_position="pre", **shape)
    options = TrainingSection(schedule="constant", warmup=0, peak_rate=3e-3, updates=1000, label_smoothing=0.0)
    finding = run_checks(clearhead_patient(config, options), only=["warmup"])["warmup"]
    assert finding.verdict == "fine"
    assert finding.measured.startswith("without warm-up the loss falls")


def test_targets_have_no_token_twice_and_begin_differently():
    examination = Examination(textbook.patient())
    for _, target in (sentences(examination), sentences(examination, (3, 4, 5, 6, 3, 4, 5, 6, 4, 5))):
        rows = [[token for token in row if token > 2] for row in target.tolist()]
        assert all(len(set(row)) == len(row) for row in rows)
        assert len({row[0] for row in rows}) == len(rows)
        assert all(row[0] == 1 for row in target.tolist())


def test_ten_examples_are_sources_to_copy():
    examples = ten_examples(Examination(textbook.patient()))
    for source, target in zip(examples.source.tolist(), examples.target.tolist(), strict=True):
        assert [token for token in source if token] == [token for token in target[1:] if token]
        assert source[source.index(0) - 1 if 0 in source else -1] == textbook.EOS


@pytest.mark.slow
def test_what_is_memorised_is_reproduced_by_the_models_own_search():
    """Greedy decoding by whole forward passes, and the textbook's beam search of one beam, say the same."""
    examination = Examination(textbook.patient())
    trained = memorised(examination)
    assert trained.teacher_forced == 1.0
    with torch.no_grad():
        found = textbook.decode(trained.model, trained.examples.source, 1)
    right = sum(
        ids == [token for token in row if token > 2]
        for ids, row in zip(found, trained.examples.target.tolist(), strict=True)
    )
    assert trained.free_running == pytest.approx(right / 10)
