"""How fast a run translates here, and how much of what the machine can do that is."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clearhead.config import ModelConfig

if TYPE_CHECKING:
    from clearhead.decoding.translator import Translator

SIDES = {"cpu": 2048, "cuda": 8192}
"""Of matrices that keep every core busy, by the kind of device."""
PRODUCTS = 6


@dataclass(frozen=True)
class Speed:
    """What `measure_speed` found; medians over rounds, for latency over single sentences."""

    sentences: int
    """How many were translated in each round."""
    output_tokens: int
    """Tokens of their outputs, end tokens counted."""
    seconds: float
    """A round's time, text in, text out."""
    sentences_per_second: float
    tokens_per_second: float
    latency: float
    """Seconds for one sentence alone."""
    peak_memory: int | None
    """Bytes: the GPU's at most allocated, or the process' largest resident set; `None` where the system doesn't say."""
    needed_flops: float
    """Floating-point operations of a round that no padding and no repetition would need."""
    peak_flops: float
    """Operations a second of large matrix products, in the same precision."""

    @property
    def share_of_peak(self) -> float:
        """The rate of needed operations over that of large matrix products."""
        return self.needed_flops / self.seconds / self.peak_flops


def measure_speed(
    translator: Translator, sources: Sequence[str], *, rounds: int = 3, single: int = 30, **changes: Any
) -> Speed:
    """Translate the sources `rounds` times, and `single` of them one by one.

    Args:
        translator: what to measure.
        sources: texts, of which none is blank.
        rounds: the first one more, which allocates, isn't counted.
        single: how many, evenly spread, are translated alone.
        changes: fields of `DecodingOptions`, as in `Translator.translate`.
    """
    options = {**changes, "n_best": 1}
    found = translator.hypotheses(sources, **options)
    lengths = [len(best.ids) + 1 for best, *_ in found]
    source_lengths = [len(ids) + 1 for ids in translator.source_tokenizer.encode_batch(list(sources))]
    seconds = statistics.median(seconds_of(partial(translator.hypotheses, sources, **options)) for _ in range(rounds))
    alone = sources[:: max(1, len(sources) // single)][:single]
    latency = statistics.median(seconds_of(partial(translator.hypotheses, [text], **options)) for text in alone)
    beam_size = changes.get("beam_size", translator.options.beam_size)
    device = next(translator.model.parameters()).device
    memory = peak_memory(device)  # before the matrices of the next line
    return Speed(
        sentences=len(sources),
        output_tokens=sum(lengths),
        seconds=seconds,
        sentences_per_second=len(sources) / seconds,
        tokens_per_second=sum(lengths) / seconds,
        latency=latency,
        peak_memory=memory,
        needed_flops=needed_flops(translator.model.config, source_lengths, lengths, beam_size=beam_size),
        peak_flops=max(product_rates(3, device=device)),
    )


def seconds_of(work: Callable[[], object]) -> float:
    """How long one call takes. What it gives back has to be on the CPU: a GPU's work may else be unfinished."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def product_rates(
    rounds: int,
    *,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    side: int | None = None,
) -> list[float]:
    """Operations a second of large matrix products, round by round: the work at which a processor is best.

    The best round is what the machine can do, the others what it did while it was disturbed. `side` is that of the
    matrices; by default large enough for the device.
    """
    side = side or SIDES.get(device.type if device else "cpu", 2048)
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))

    def products() -> None:
        for _ in range(PRODUCTS):
            result = torch.mm(a, b)
        result[0, 0].item()  # waits for a GPU

    products()
    return [PRODUCTS * 2 * side**3 / seconds_of(products) for _ in range(rounds)]


def needed_flops(
    config: ModelConfig,
    source_lengths: Sequence[int] | np.ndarray,
    target_lengths: Sequence[int] | np.ndarray,
    *,
    training: bool = False,
    beam_size: int = 1,
) -> float:
    """Floating-point operations of the matrix products that these sentences need, without padding.

    A product of `n` rows with a matrix of `p` numbers is `2 n p`; the backward pass costs twice the forward pass.
    """
    s, t = np.asarray(source_lengths, np.float64), np.asarray(target_lengths, np.float64)
    m, f, v = config.d_model, config.d_ff, config.target_vocab
    encoder = 2 * s * (4 * m * m + 2 * m * f) + 4 * m * s * s
    keys_and_values = 2 * s * 2 * m * m  # of the source, once for all hypotheses
    # Six square matrices a layer: four of self-attention, two of attention to the source. Causal: half of the scores.
    decoder = 2 * t * (6 * m * m + 2 * m * f) + 4 * m * (t * t / 2 + s * t)
    hypotheses = config.decoder_layers * decoder + 2 * t * m * v
    total = (config.encoder_layers * encoder + config.decoder_layers * keys_and_values + beam_size * hypotheses).sum()
    return float(total) * (3 if training else 1)


def peak_memory(device: torch.device) -> int | None:
    """Bytes taken at the peak so far: allocated on a GPU, else the process' largest resident set."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
