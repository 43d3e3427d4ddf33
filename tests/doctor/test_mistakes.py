"""Every planted mistake is named, and no sound model raises an alarm."""

import pytest
import torch

from clearhead.doctor.catalogue import CHECKS, NAMES, run_checks
from clearhead.doctor.mistakes import sound
from clearhead.doctor.table import all_mistakes, try_mistake, try_sound

MISTAKES = {mistake.name: mistake for mistake in all_mistakes()}
TRAINING = {check.name for check in CHECKS if check.trains}
SOUND = {make.__name__: make for make in (*sound.SOUND, *sound.SOUND_TRANSFORMERS)}
FAST = [name for name, mistake in MISTAKES.items() if mistake.check not in TRAINING]


@pytest.fixture(autouse=True)
def _transformers_only_where_needed(request):
    name = request.node.callspec.params.get("name") if hasattr(request.node, "callspec") else None
    if name in {make.__name__ for make in sound.SOUND_TRANSFORMERS}:
        pytest.importorskip("transformers", reason="examining transformers' models needs the transformers library")


def test_there_are_enough_of_them_and_every_check_has_one():
    assert len(MISTAKES) >= 20
    assert {mistake.check for mistake in MISTAKES.values()} == set(NAMES)


@pytest.mark.parametrize("name", FAST)
def test_the_check_names_the_mistake(name):
    """cases M1, M4, M5, M7, M9, M10, M12, S3, V1, V2, V3, T3, T5, T6, T8, T14, D2, D5, D6, G13, E4."""
    mistake = MISTAKES[name]
    finding = run_checks(mistake.make(), only=[mistake.check])[mistake.check]
    assert finding.is_fault, finding.measured
    assert finding.causes
    if mistake.check != "data":
        assert finding.look_at


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_the_first_fault_of_a_whole_examination_is_the_mistake(name):
    named = try_mistake(MISTAKES[name], training=True)
    assert named.first == named.planted


@pytest.mark.parametrize("name", SOUND)
def test_no_alarm_without_training(name):
    report = run_checks(SOUND[name](), training=False)
    assert not [(f.check, f.measured) for f in (*report.faults, *report.warnings)]
    assert not [f.measured for f in report.findings if f.measured.startswith("could not be measured")]


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_no_alarm_at_all(name):
    cleared = try_sound(SOUND[name])
    assert not cleared.alarms
    assert not cleared.warnings


def test_an_examination_leaves_the_random_numbers_and_the_model_alone():
    patient = sound.torch_post_norm()
    model = patient.build().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    report = run_checks(type(patient)(**{**vars(patient), "trained": model}), training=False)
    assert not report.faults
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
