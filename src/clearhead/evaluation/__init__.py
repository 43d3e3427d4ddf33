"""How good the outputs are: metrics, the comparison of two outputs, and the report.

    from clearhead.evaluation import evaluate_outputs
    scores = evaluate_outputs(["AH B IY"], [["AH B IY", "AE B IY"]])
    scores.exact_match                                                # 100.0

`metrics` measures, `reference_sets` reads what to measure against, `significance` asks whether a difference
could be chance, `report` prints.
"""

from clearhead.evaluation.metrics import METRICS, Scores, evaluate_outputs, with_loss
from clearhead.evaluation.reference_sets import ReferenceSet
from clearhead.evaluation.significance import Comparison, compare_outputs

__all__ = [
    "METRICS",
    "Comparison",
    "ReferenceSet",
    "Scores",
    "compare_outputs",
    "evaluate_outputs",
    "with_loss",
]
