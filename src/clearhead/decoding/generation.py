"""Going on with prompts: one loop for a batch of them, whatever their lengths. Ids in, ids out.

The prompts are read side by side, right-padded; from then on every hypothesis stands at its own position, and none sees
padding. So a prompt's result depends on nothing but the prompt. Greedy search is a beam of 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from clearhead.decoding.choice import Choice, best_candidates, choose_at_random, choose_best
from clearhead.decoding.generation_options import GenerationOptions
from clearhead.models.gpt import GPT
from clearhead.parts.cache import Rows

CROWDED = 0.75
"""A batch is packed anew when no more than this share of its texts are still being written."""

IsFinished = Callable[[int, list[int]], bool]
"""Asked after every token: the place of the prompt, and what was added to it so far."""


@dataclass(frozen=True)
class Continuation:
    """What was added to a prompt."""

    ids: list[int]
    """Without the end token."""
    log_probability: float
    """Natural logarithm, summed over the tokens added, and the end token if there is one."""
    score: float
    ended: bool
    """By the end token or a stop string, and not at the limit of tokens."""


@dataclass
class Text:
    """What the loop knows of one prompt."""

    place: int
    prompt: Sequence[int]
    limit: int
    """The most tokens to add."""
    draws: np.ndarray
    finished: list[Continuation] = field(default_factory=list)

    def best(self) -> Continuation:
        """The finished hypothesis with the best score."""
        return max(self.finished, key=lambda one: one.score)


@torch.inference_mode()
def generate(
    model: GPT,
    prompts: Sequence[Sequence[int]],
    options: GenerationOptions,
    *,
    end: Sequence[int] = (),
    is_finished: IsFinished | None = None,
) -> list[Continuation]:
    """What follows each prompt; the model is to be in eval mode, and every prompt has a token at least.

    `end` are the tokens that end a text. `is_finished` may end it elsewhere: what it is shown stays whole.
    """
    texts = [make_text(model, place, prompt, options) for place, prompt in enumerate(prompts)]
    running = RunningTexts(model, [text for text in texts if text.limit], options, list(end), is_finished)
    while running.texts:
        running.advance()
    return [text.best() if text.finished else Continuation([], 0.0, 0.0, False) for text in texts]


def make_text(model: GPT, place: int, prompt: Sequence[int], options: GenerationOptions) -> Text:
    """A prompt with its limit, and random numbers that follow from the seed and the prompt alone."""
    limit = options.max_new_tokens
    if model.config.positions == "learned":  # the last token added is never read
        limit = min(limit, max(0, (model.config.max_positions or 0) + 1 - len(prompt)))
    draws = np.random.default_rng([options.seed, *prompt]).random(max(1, limit), dtype=np.float32)
    return Text(place, prompt, limit, draws)


class RunningTexts:
    """Texts being written side by side, `k` hypotheses each. A closed hypothesis has the log-probability `-inf`."""

    def __init__(
        self, model: GPT, texts: list[Text], options: GenerationOptions, end: list[int], is_finished: IsFinished | None
    ) -> None:
        self.model, self.texts, self.options = model, texts, options
        self.end, self.is_finished = end, is_finished
        self.k = options.beam_size
        if texts:
            self.start()

    def start(self) -> None:
        """Read the prompts: their last tokens' logits, once for each hypothesis."""
        device = next(self.model.parameters()).device
        lengths = torch.tensor([len(text.prompt) for text in self.texts], device=device)
        prompts = pad_sequence([torch.tensor(text.prompt) for text in self.texts], batch_first=True).to(device)
        longest = max(len(text.prompt) for text in self.texts)
        room = longest + self.k * max(text.limit for text in self.texts)
        self.cache = self.model.start_cache(len(self.texts), capacity=min(room, longest + 512))
        logits = self.model.start(prompts, lengths, self.cache)
        self.cache.fan_out(self.k)
        self.logits = logits.float().repeat_interleave(self.k, 0)
        self.added = torch.zeros(len(self.texts), self.k, 0, dtype=torch.long, device=device)
        self.log_probabilities = torch.zeros(len(self.texts), self.k, device=device)
        self.log_probabilities[:, 1:] = -math.inf  # the hypotheses begin alike: let only one of them fan out
        if self.options.repetition_penalty != 1.0:
            self.seen = torch.zeros(len(self.texts), logits.size(-1), dtype=torch.bool, device=device)
            real = torch.arange(longest, device=device) < lengths[:, None]
            self.seen[real.nonzero()[:, 0], prompts[real]] = True

    def advance(self) -> None:
        """Choose one more token of every open hypothesis, and decode it."""
        rows = Rows(self.log_probabilities.isfinite()) if self.added.size(-1) else self.cache.rows
        choice = self.choose(self.penalized(self.logits, rows), rows)
        self.added = self.added.gather(1, choice.origins[:, :, None].expand_as(self.added))
        self.added = torch.cat([self.added, choice.tokens[:, :, None]], -1)
        self.log_probabilities = choice.log_probabilities
        if self.k > 1:
            self.cache.follow(choice.origins)
        closed = self.collect()
        if closed.any():
            self.log_probabilities = self.log_probabilities.masked_fill(closed, -math.inf)
            self.leave_done()
        if self.texts:
            rows = self.cache.rows = Rows(self.log_probabilities.isfinite())
            self.logits = self.model.step(rows.gather(self.added[:, :, -1:]), self.cache)[:, -1].float()

    def penalized(self, logits: Float[Tensor, "r v"], rows: Rows) -> Float[Tensor, "r v"]:
        """Tokens that are there already made less likely."""
        penalty = self.options.repetition_penalty
        if penalty == 1.0:
            return logits
        seen = self.seen[:, None].expand(-1, self.k, -1)
        if self.added.size(-1):
            seen = seen.clone().scatter_(2, self.added, True)
        return torch.where(rows.gather(seen), torch.where(logits > 0, logits / penalty, logits * penalty), logits)

    def choose(self, logits: Float[Tensor, "r v"], rows: Rows) -> Choice:
        """Search or draw."""
        options, normalizer = self.options, logits.logsumexp(-1)
        if options.sample:
            step = self.added.size(-1)
            uniform = torch.tensor([[float(text.draws[step])] for text in self.texts], device=logits.device)
            return choose_at_random(
                self.log_probabilities, logits, normalizer, rows, uniform,
                temperature=options.temperature, top_k=options.top_k, top_p=options.top_p,
            )  # fmt: skip
        slots = torch.tensor([self.k - len(text.finished) for text in self.texts], device=logits.device)
        return choose_best(self.log_probabilities, best_candidates(logits, normalizer, self.k), rows, slots)

    def collect(self) -> Bool[Tensor, "b k"]:
        """Put hypotheses aside that have just ended; says which."""
        length = self.added.size(-1)
        closed = torch.zeros_like(self.log_probabilities, dtype=torch.bool)
        open_now = self.log_probabilities.isfinite().tolist()
        last = self.added[:, :, -1].tolist()
        for row, text in enumerate(self.texts):
            for column in range(self.k):
                if not open_now[row][column]:
                    continue
                by_token = last[row][column] in self.end
                asks = self.is_finished is not None or by_token or length >= text.limit
                ids = self.added[row, column].tolist() if asks else []
                by_text = not by_token and self.is_finished is not None and self.is_finished(text.place, ids)
                if by_token or by_text or length >= text.limit:
                    total = float(self.log_probabilities[row, column])
                    kept = ids[:-1] if by_token else ids
                    score = self.options.score(total, length)
                    text.finished.append(Continuation(kept, total, score, by_token or by_text))
                    closed[row, column] = True
        return closed

    def leave_done(self) -> None:
        """Let texts leave the grid and the cache in which nothing open can overtake what is finished."""
        best_open = self.log_probabilities.max(-1).values.tolist()
        for row, text in enumerate(self.texts):
            if best_open[row] > -math.inf and text.finished:
                # A log-probability only falls; divided by a power of the length it rises most at the limit.
                lengths = (self.added.size(-1) + 1, text.limit)
                if text.best().score >= max(self.options.score(best_open[row], length) for length in lengths):
                    self.log_probabilities[row] = -math.inf
        staying = self.log_probabilities.isfinite().any(-1).nonzero().squeeze(1)
        if len(staying) <= CROWDED * len(self.texts):
            self.keep(staying)

    def keep(self, staying: Int[Tensor, " b2"]) -> None:
        """Only these texts stay."""
        self.texts = [self.texts[row] for row in staying.tolist()]
        self.added, self.log_probabilities = self.added[staying], self.log_probabilities[staying]
        if self.options.repetition_penalty != 1.0:
            self.seen = self.seen[staying]
        if self.texts:
            self.cache.keep_sentences(staying)
