"""Greedy search, beam search and sampling: one loop for a batch of sentences.

Beam search keeps the `beam_size` best hypotheses of each sentence. One that takes the end token is finished and keeps
its slot; the others go on, until all have ended or none can overtake the best finished ones any more: a
log-probability only falls, so an open hypothesis can at best score `log P / penalty(length limit)`. A sentence's result
depends on nothing but the sentence: neighbours, padding and `n_best` have no say.

Only open hypotheses are decoded. What is closed costs no matrix product, just its place in the grid `(b, k)`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from clearhead.control_tokens import BOS, EOS, PAD, UNK
from clearhead.decoding.choice import Choice, choose_at_random, choose_best
from clearhead.decoding.options import DecodingOptions
from clearhead.models.transformer import Memory, Transformer
from clearhead.parts.cache import Rows

NEVER_GENERATED = [PAD, BOS, UNK]
PIECE_TOKENS = {"cpu": 1024}
"""Source tokens that the encoder reads at a time, by device; elsewhere all."""
CROWDED = 0.75
"""A batch is packed anew when no more than this share of its sentences are still being decoded."""


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
    running = RunningBatch(model, encode(model, sources), sentences, options)
    while running.any_open:
        running.advance()
    return [sentence.best(options.n_best) for sentence in sentences]


def encode(model: Transformer, sources: Sequence[Sequence[int]]) -> Memory:
    """The encoder's states of all sources, made in pieces: sources that stand side by side are of like length, so a
    piece needs little padding, and its states stay in the processor's cache."""
    device = next(model.parameters()).device
    states: list[Tensor] = []
    masks: list[Tensor] = []
    for piece in pieces(sources, PIECE_TOKENS.get(device.type, sys.maxsize)):
        padded = pad_sequence([torch.tensor(source) for source in piece], batch_first=True, padding_value=PAD)
        memory = model.encode(padded.to(device))
        states += memory.states
        masks += memory.mask[:, 0, 0]
    mask = pad_sequence(masks, batch_first=True)[:, None, None]
    return Memory(pad_sequence(states, batch_first=True), mask)


def pieces(sources: Sequence[Sequence[int]], most_tokens: int) -> Iterator[Sequence[Sequence[int]]]:
    """Neighbours together, at most `most_tokens` with padding, or one alone."""
    start, longest = 0, 0
    for place, source in enumerate(sources):
        if place > start and max(longest, len(source)) * (place + 1 - start) > most_tokens:
            yield sources[start:place]
            start, longest = place, 0
        longest = max(longest, len(source))
    yield sources[start:]


def uniform_draws(options: DecodingOptions, source: Sequence[int], limit: int) -> np.ndarray:
    """Random numbers for every step and hypothesis of a sentence, from the seed and the sentence alone."""
    generator = np.random.default_rng([options.seed, *source])
    return generator.random((limit + 1, options.hypotheses), dtype=np.float32)


class RunningBatch:
    """Sentences being decoded side by side, `k` hypotheses each. A closed hypothesis has the log-probability `-inf`."""

    def __init__(self, model: Transformer, memory: Memory, sentences: list[Sentence], options: DecodingOptions) -> None:
        self.model, self.options = model, options
        self.sentences = list(sentences)
        self.k = options.hypotheses
        self.cache = model.start_cache(memory, beams=self.k)
        device = memory.mask.device
        self.ids = torch.full((len(sentences), self.k, 1), BOS, device=device)
        self.log_probabilities = torch.zeros(len(sentences), self.k, device=device)
        if not options.sample:  # the hypotheses begin alike: let only one of them fan out
            self.log_probabilities[:, 1:] = -math.inf

    @property
    def any_open(self) -> bool:
        """There is something left to decode."""
        return bool(self.log_probabilities.isfinite().any())

    def advance(self) -> None:
        """Decode one more token of every open hypothesis."""
        rows = self.cache.rows = Rows(self.log_probabilities.isfinite())
        logits = self.model.step(rows.gather(self.ids[:, :, -1:]), self.cache)[:, -1].float()
        normalizer = logits.logsumexp(-1)
        logits[:, NEVER_GENERATED] = -math.inf
        cut = rows.spread(self.force_tokens(logits, rows))
        choice = self.choose(logits, normalizer, rows)
        if self.k > 1 and not self.options.sample:
            self.ids = self.ids.gather(1, choice.origins[:, :, None].expand_as(self.ids))
            self.cache.follow(choice.origins)
        self.ids = torch.cat([self.ids, choice.tokens[:, :, None]], -1)
        self.log_probabilities = choice.log_probabilities
        ended = (choice.tokens == EOS) & self.log_probabilities.isfinite()
        if ended.any():
            self.collect(ended, cut.gather(1, choice.origins))
            self.log_probabilities = self.log_probabilities.masked_fill(ended, -math.inf)
            self.log_probabilities[self.done()] = -math.inf
            self.pack()

    def force_tokens(self, logits: Float[Tensor, "r v"], rows: Rows) -> Bool[Tensor, " r"]:
        """Leave only the prefix' next token, or the end token at the limit; says which hypotheses that cuts short."""
        length = self.ids.size(-1) - 1
        forced = torch.full(rows.grid, -1)
        at_limit = torch.zeros(rows.grid, dtype=torch.bool)
        for place, sentence in enumerate(self.sentences):
            if length < len(sentence.prefix):
                forced[place] = sentence.prefix[length]
            elif length >= sentence.limit:
                forced[place], at_limit[place] = EOS, True
        if (forced < 0).all():
            return torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
        forced, at_limit = (rows.gather(grid.to(logits.device)) for grid in (forced, at_limit))
        cut = at_limit & (logits.argmax(-1) != EOS)
        others = torch.arange(logits.size(-1), device=logits.device) != forced[:, None]
        logits.masked_fill_(others & (forced >= 0)[:, None], -math.inf)
        return cut

    def choose(self, logits: Float[Tensor, "r v"], normalizer: Float[Tensor, " r"], rows: Rows) -> Choice:
        """Search or draw."""
        options = self.options
        if not options.sample:
            slots = torch.tensor([self.k - len(sentence.finished) for sentence in self.sentences], device=logits.device)
            return choose_best(self.log_probabilities, logits, normalizer, rows, slots)
        step = self.ids.size(-1) - 1
        draws = [s.draws[min(step, s.limit)] for s in self.sentences if s.draws is not None]
        uniform = torch.from_numpy(np.stack(draws)).to(logits.device)
        return choose_at_random(
            self.log_probabilities, logits, normalizer, rows, uniform,
            temperature=options.temperature, top_k=options.top_k, top_p=options.top_p,
        )  # fmt: skip

    def collect(self, ended: Bool[Tensor, "b k"], cut: Bool[Tensor, "b k"]) -> None:
        """Put hypotheses that have just ended aside, with their scores."""
        length = self.ids.size(-1) - 1  # the end token counts, the start token doesn't
        for place, column in ended.nonzero().tolist():
            total = float(self.log_probabilities[place, column])
            ids = self.ids[place, column, 1:-1].tolist()
            finished = Finished(ids, total, self.options.score(total, length), bool(cut[place, column]))
            self.sentences[place].finished.append(finished)

    def done(self) -> list[int]:
        """The sentences of which nothing open can be better than what is finished."""
        done = []
        for place, best_open in enumerate(self.log_probabilities.max(-1).values.tolist()):
            sentence = self.sentences[place]
            if not self.options.sample and best_open > -math.inf and len(sentence.finished) >= self.options.n_best:
                bound = self.options.score(best_open, sentence.limit + 1)
                if sentence.best(self.options.n_best)[-1].score >= bound:
                    done.append(place)
        return done

    def pack(self) -> None:
        """Let the sentences that are done leave the grid and the cache, once there are enough of them."""
        staying = self.log_probabilities.isfinite().any(-1).nonzero().squeeze(1)
        if 0 < len(staying) <= CROWDED * len(self.sentences):
            self.sentences = [self.sentences[place] for place in staying.tolist()]
            self.ids, self.log_probabilities = self.ids[staying], self.log_probabilities[staying]
            self.cache.keep_sentences(staying)
