"""Greedy search, beam search and sampling: one loop for a batch of sentences.

Beam search keeps the `beam_size` best hypotheses of each sentence. One that takes the end token is finished and keeps
its slot; the others go on, until all have ended or none can overtake the best finished ones any more: a
log-probability only falls, so an open hypothesis can at best score `log P / penalty(length limit)`. A sentence's result
depends on nothing but the sentence: neighbours, padding and `n_best` have no say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from clearhead.control_tokens import BOS, EOS, PAD, UNK
from clearhead.decoding.choice import Choice, choose_at_random, choose_best
from clearhead.decoding.options import DecodingOptions
from clearhead.models.transformer import Transformer

NEVER_GENERATED = [PAD, BOS, UNK]


@dataclass(frozen=True)
class Finished:
    """One hypothesis that has ended."""

    ids: list[int]
    """Target tokens, without start and end token."""
    log_probability: float
    """Sum over the tokens and the end token."""
    score: float
    """What hypotheses are ranked by (`DecodingOptions.score`)."""
    hit_length_limit: bool
    """The output was cut at the length limit."""


@dataclass
class Sentence:
    """What the search knows of one sentence."""

    limit: int
    """The most tokens that its output may have, the end token not counted."""
    prefix: Sequence[int]
    draws: np.ndarray | None = None
    finished: list[Finished] = field(default_factory=list)

    def best(self, n: int) -> list[Finished]:
        """The `n` best finished hypotheses, the best first."""
        return sorted(self.finished, key=lambda hypothesis: -hypothesis.score)[:n]


@torch.inference_mode()
def search(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    options: DecodingOptions,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Finished]]:
    """The `n_best` outputs of each source, the best first.

    `sources` are token ids ending with the end token; an output begins with its prefix, if one is given.
    The model is to be in eval mode.
    """
    sentences = []
    for place, source in enumerate(sources):
        prefix = prefixes[place] if prefixes else ()
        limit = max(options.length_limit(len(source) - 1), len(prefix))
        draws = uniform_draws(options, source, limit) if options.sample else None
        sentences.append(Sentence(limit, prefix, draws))
    device = next(model.parameters()).device
    batch = pad_sequence([torch.tensor(source) for source in sources], batch_first=True, padding_value=PAD)
    running = RunningBatch(model, batch.to(device), sentences, options)
    while running.sentences:
        running.advance()
    return [sentence.best(options.n_best) for sentence in sentences]


def uniform_draws(options: DecodingOptions, source: Sequence[int], limit: int) -> np.ndarray:
    """Random numbers for every step and hypothesis of a sentence, from the seed and the sentence alone."""
    generator = np.random.default_rng([options.seed, *source])
    return generator.random((limit + 1, options.hypotheses), dtype=np.float32)


class RunningBatch:
    """Sentences being decoded side by side, `k` hypotheses each; those that are done leave it."""

    def __init__(
        self, model: Transformer, source: Int[Tensor, "b s"], sentences: list[Sentence], options: DecodingOptions
    ) -> None:
        self.model, self.options = model, options
        self.sentences = list(sentences)
        self.k = options.hypotheses
        self.cache = model.start_cache(model.encode(source), beams=self.k)
        self.ids = torch.full((len(sentences), self.k, 1), BOS, device=source.device)
        self.log_probabilities = torch.zeros(len(sentences), self.k, device=source.device)
        if not options.sample:  # the hypotheses begin alike: let only one of them fan out
            self.log_probabilities[:, 1:] = -math.inf

    def advance(self) -> None:
        """Decode one more token of every open hypothesis."""
        last = self.ids[:, :, -1].reshape(-1, 1)
        logits = self.model.step(last, self.cache)[:, -1].float().unflatten(0, (-1, self.k))
        normalizer = logits.logsumexp(-1)
        logits[:, :, NEVER_GENERATED] = -math.inf
        cut = self.force_tokens(logits)
        choice = self.choose(logits, normalizer)
        self.ids = torch.cat([self.reordered(self.ids, choice), choice.tokens[:, :, None]], -1)
        self.log_probabilities = choice.log_probabilities
        ended = choice.tokens == EOS
        if ended.any():
            self.collect(ended & self.log_probabilities.isfinite(), cut.gather(1, choice.origins))
            self.log_probabilities = self.log_probabilities.masked_fill(ended, -math.inf)
        self.keep(choice, self.done() if ended.any() else [])

    def force_tokens(self, logits: Float[Tensor, "b k v"]) -> Bool[Tensor, "b k"]:
        """Leave only the prefix' next token, or the end token at the limit; says which hypotheses that cuts short."""
        length = self.ids.size(-1) - 1
        cut = torch.zeros(logits.shape[:2], dtype=torch.bool, device=logits.device)
        for row, sentence in enumerate(self.sentences):
            forced = sentence.prefix[length] if length < len(sentence.prefix) else EOS
            at_limit = length >= sentence.limit
            if at_limit:
                cut[row] = logits[row].argmax(-1) != EOS
            if length < len(sentence.prefix) or at_limit:
                kept = logits[row, :, forced].clone()
                logits[row] = -math.inf
                logits[row, :, forced] = kept
        return cut

    def choose(self, logits: Float[Tensor, "b k v"], normalizer: Float[Tensor, "b k"]) -> Choice:
        """Search or draw."""
        options = self.options
        if not options.sample:
            slots = torch.tensor([self.k - len(sentence.finished) for sentence in self.sentences], device=logits.device)
            return choose_best(self.log_probabilities, logits, normalizer, slots)
        step = self.ids.size(-1) - 1
        rows = [s.draws[min(step, s.limit)] for s in self.sentences if s.draws is not None]
        uniform = torch.from_numpy(np.stack(rows)).to(logits.device)
        return choose_at_random(
            self.log_probabilities, logits, normalizer, uniform,
            temperature=options.temperature, top_k=options.top_k, top_p=options.top_p,
        )  # fmt: skip

    @staticmethod
    def reordered(ids: Int[Tensor, "b k t"], choice: Choice) -> Int[Tensor, "b k t"]:
        """Each hypothesis takes over the tokens of the one that it continues."""
        return ids.gather(1, choice.origins[:, :, None].expand_as(ids)) if ids.size(1) > 1 else ids

    def collect(self, ended: Bool[Tensor, "b k"], cut: Bool[Tensor, "b k"]) -> None:
        """Put hypotheses that have just ended aside, with their scores."""
        length = self.ids.size(-1) - 1  # the end token counts, the start token doesn't
        for row, column in ended.nonzero().tolist():
            total = float(self.log_probabilities[row, column])
            ids = self.ids[row, column, 1:-1].tolist()
            finished = Finished(ids, total, self.options.score(total, length), bool(cut[row, column]))
            self.sentences[row].finished.append(finished)

    def done(self) -> list[int]:
        """Rows of the sentences of which nothing open can be better than what is finished."""
        done = []
        for row, best_open in enumerate(self.log_probabilities.max(-1).values.tolist()):
            sentence = self.sentences[row]
            hopeless = best_open == -math.inf
            if not hopeless and not self.options.sample and len(sentence.finished) >= self.options.n_best:
                bound = self.options.score(best_open, sentence.limit + 1)
                hopeless = sentence.best(self.options.n_best)[-1].score >= bound
            if hopeless:
                done.append(row)
        return done

    def keep(self, choice: Choice, done: list[int]) -> None:
        """Let finished sentences leave, and reorder what the cache holds as the hypotheses were."""
        if not self.sentences:
            return
        rows = torch.arange(len(self.sentences), device=self.ids.device)[:, None] * self.k + choice.origins
        if done:
            leaving = set(done)
            stay = [row for row in range(len(self.sentences)) if row not in leaving]
            self.sentences = [self.sentences[row] for row in stay]
            kept = torch.tensor(stay, dtype=torch.long, device=self.ids.device)
            self.ids, self.log_probabilities = self.ids[kept], self.log_probabilities[kept]
            if self.sentences:
                self.cache.select(rows[kept].flatten(), kept)
        elif self.k > 1 and not self.options.sample:
            self.cache.select(rows.flatten())
