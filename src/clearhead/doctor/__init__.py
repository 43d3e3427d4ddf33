"""The doctor: which of the classic mistakes does a Transformer make?

    from clearhead.doctor import Patient, examine

    report = examine("runs/pinyin")                     # a run folder, a Hugging Face folder, or module:function
    report = examine(Patient(build=make_my_model))      # any torch.nn.Module
    for finding in report.faults: print(finding.measured, finding.causes, finding.look_at)

And for tests of your own: `assert_causal(model)`, `assert_padding_invariant(model)` and their like.
"""

from clearhead.doctor.assertions import (
    assert_batch_invariant,
    assert_cache_exact,
    assert_causal,
    assert_finite_on_empty_rows,
    assert_healthy,
    assert_learns,
    assert_masks_right,
    assert_order_matters,
    assert_padding_invariant,
    assert_repeatable,
    assert_scaled,
    assert_tied,
)
from clearhead.doctor.finding import Finding, Report
from clearhead.doctor.patient import Patient, TextSide
from clearhead.doctor.targets import examine

__all__ = [
    "Finding",
    "Patient",
    "Report",
    "TextSide",
    "assert_batch_invariant",
    "assert_cache_exact",
    "assert_causal",
    "assert_finite_on_empty_rows",
    "assert_healthy",
    "assert_learns",
    "assert_masks_right",
    "assert_order_matters",
    "assert_padding_invariant",
    "assert_repeatable",
    "assert_scaled",
    "assert_tied",
    "examine",
]
