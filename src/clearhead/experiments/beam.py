"""What beam search finds that greedy search does not (section 6.1)."""

from __future__ import annotations

import time
from typing import NamedTuple

from clearhead.control_tokens import EOS
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.search import Finished, search
from clearhead.experiments.dates_task import Dates, held_out_batch, train_dates
from clearhead.experiments.result import Chart, Effort, Result, Table, judge
from clearhead.models.transformer import Transformer

TITLE = "a beam finds likelier outputs than greedy search"
CLAIM = (
    "Beam search with 4 hypotheses and a length penalty α = 0.6 finds better outputs than greedy search (section 6.1)."
)
FORMULA = "score = log P(output | source) / ((5 + length) / 6)^α;  the beam keeps the k likeliest continuations"


class Measured(NamedTuple):
    """Decoding the test pairs."""

    log_probability: float
    """Mean over the outputs, in nats."""
    exact: float
    """Share of outputs that are right as a whole."""
    length: float
    """Mean tokens."""
    seconds: float


def measure(effort: Effort, seed: int) -> Result:
    """A half-trained model decoded with several beams, with and without the length penalty."""
    updates = effort.of(120, 220, 600)
    model, _ = train_dates(effort, seed, updates=updates, rate=4e-3, warmup=updates // 4)
    dates, _ = held_out_batch(effort)
    tested = dates._replace(test=dates.test[: effort.of(50, 200, 400)])
    beams = effort.of([1, 4], [1, 2, 4, 8], [1, 2, 4, 8, 16, 32])
    outputs = {beam: decode(model, tested, beam, 0.0) for beam in beams}
    found = {beam: summarize(tested, *outputs[beam]) for beam in beams}
    penalties = {
        alpha: summarize(tested, *decode(model, tested, 4, alpha)) for alpha in effort.of([0.6], [0.6, 2.0], [0.6, 2.0])
    }

    greedy, four = found[1], found[4]
    likelier = sum(
        b.log_probability > a.log_probability + 1e-4 for a, b in zip(outputs[1][0], outputs[4][0], strict=True)
    )
    worse = sum(b.log_probability < a.log_probability - 1e-4 for a, b in zip(outputs[1][0], outputs[4][0], strict=True))
    better = four.exact > greedy.exact
    verdict = (
        f"A beam of 4 finds a likelier output than greedy search for {likelier} of {len(tested.test)} texts and a less "
        f"likely one for {worse} (mean log-probability {four.log_probability:.3f} against "
        f"{greedy.log_probability:.3f}); {four.exact:.1%} of its outputs are right against {greedy.exact:.1%}, in "
        f"{four.seconds / greedy.seconds:.1f} times the time"
        + ("." if better else ": likelier is not the same as better.")
        + f" The penalty changes {'nothing' if abs(penalties[0.6].length - four.length) < 1e-9 else 'little'} here, "
        "where every right output has 10 tokens."
    )
    rows = [(beam, 0.0, *found[beam]) for beam in beams] + [(4, alpha, *m) for alpha, m in penalties.items()]
    return Result(
        judge(four.log_probability >= greedy.log_probability, partly=True),
        verdict,
        [
            Table(
                f"Written dates to ISO, a model stopped after {updates} updates, {len(tested.test)} test texts",
                ("beam", "α", "mean log P", "right", "tokens", "seconds"),
                rows,
            )
        ],
        Chart(
            "What a wider beam finds",
            "beam",
            "mean log-probability",
            {"α = 0": [(beam, found[beam].log_probability) for beam in beams]},
            log_x=True,
        ),
    )


def decode(model: Transformer, dates: Dates, beam: int, alpha: float) -> tuple[list[Finished], float]:
    """The best output of each test text, and the seconds it took."""
    options = DecodingOptions(beam_size=beam, length_penalty=alpha, max_length_ratio=0.0, max_length_extra=20)
    start = time.perf_counter()
    found = search(model, [[*source, EOS] for source, _ in dates.test], options)
    return [best[0] for best in found], time.perf_counter() - start


def summarize(dates: Dates, outputs: list[Finished], seconds: float) -> Measured:
    """Means over all outputs."""
    count = len(outputs)
    right = sum(output.ids == target for output, (_, target) in zip(outputs, dates.test, strict=True))
    log_probability = sum(output.log_probability for output in outputs) / count
    return Measured(log_probability, right / count, sum(len(output.ids) for output in outputs) / count, seconds)
