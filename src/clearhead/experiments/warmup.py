"""What the warm-up of the learning rate is good for (section 5.3)."""

from __future__ import annotations

import statistics

from clearhead.experiments.dates_task import train_dates
from clearhead.experiments.result import Chart, Effort, Result, Table, judge
from clearhead.training.schedules import learning_rate

TITLE = "the learning rate rises before it falls"
CLAIM = "Training needs a learning rate that first rises and then falls with the root of the updates (section 5.3)."
FORMULA = "rate = d_model^-0.5 · min(update^-0.5, update · warmup^-1.5):  highest at update = warmup"

NORMS = ("post", "pre")


def measure(effort: Effort, seed: int) -> Result:
    """The same training with and without a warm-up, at two rates, for both places of the norm."""
    updates = effort.of(60, 110, 1000)
    warmup, layers = updates // 3, effort.of(2, 3, 4)
    rates = effort.of([4e-3], [1e-3, 5e-3], [5e-4, 1e-3, 2e-3, 5e-3, 1e-2])
    curves = {
        (norm, rate, warm): train_dates(
            effort, seed, updates=updates, rate=rate, warmup=warm, norm_position=norm, layers=layers
        )[1]
        for norm in NORMS
        for rate in rates
        for warm in (0, warmup)
    }
    final = {key: statistics.mean(losses[-10:]) for key, losses in curves.items()}
    high, low = rates[-1], rates[0]
    gain = {norm: final[norm, high, 0] - final[norm, high, warmup] for norm in NORMS}
    holds = gain["post"] > 0.05
    needless = gain["pre"] < 0.5 * gain["post"] or final["post", low, 0] < final["post", high, warmup]
    verdict = (
        f"After {updates} updates at a peak rate of {high:g} post-norm is at a loss of {final['post', high, 0]:.2f} "
        f"without a warm-up and {final['post', high, warmup]:.2f} with one of {warmup}, pre-norm at "
        f"{final['pre', high, 0]:.2f} and {final['pre', high, warmup]:.2f}; at {low:g} post-norm is at "
        f"{final['post', low, 0]:.2f} and {final['post', low, warmup]:.2f}"
        + (": the need for it depends on where the norm stands and on how high the rate is." if needless else ".")
    )
    return Result(
        judge(holds, partly=needless),
        verdict,
        [
            Table(
                f"Written dates to ISO, {layers} + {layers} layers: training loss (nats a token), last 10 updates",
                ("norm", "peak rate", "no warm-up", f"warm-up of {warmup}"),
                [(norm, rate, final[norm, rate, 0], final[norm, rate, warmup]) for norm in NORMS for rate in rates],
            ),
            Table(
                "The paper's rate for d_model 512 and a warm-up of 4,000",
                ("update", "rate"),
                [(u, learning_rate("paper", u, peak=0.0, warmup=4000)) for u in (1, 1000, 4000, 16_000, 100_000)],
            ),
        ],
        Chart(
            f"Training loss at a peak rate of {high:g}",
            "update",
            "nats a token",
            {
                f"{norm}-norm, {f'warm-up of {warm}' if warm else 'no warm-up'}": list(
                    enumerate(curves[norm, high, warm], 1)
                )
                for norm in NORMS
                for warm in (0, warmup)
            },
        ),
    )
