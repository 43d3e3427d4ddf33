"""Greedy search, beam search and sampling: one loop for many sentences.

Beam search keeps the `beam_size` best hypotheses of each sentence. One that takes the end token is finished and keeps
its slot; the others go on, until all have ended or none can overtake the best finished ones any more: a
log-probability only falls, so an open hypothesis can at best score `log P / penalty(length limit)`. A sentence's result
depends on nothing but the sentence: neighbours, padding and `n_best` have no say.

Matrix products want many rows. So only open hypotheses are decoded, a closed one costs no more than its place in the
grid `(b, k)`; and when sentences are done, others that wait take their places (continuous batching; Yu et al., 2022,
"Orca").
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from clearhead.control_tokens import BOS, EOS, PAD, UNK
from clearhead.decoding.choice import Candidates, Choice, best_candidates, choose_at_random, choose_best
from clearhead.decoding.options import DecodingOptions
from clearhead.decoding.packed_linear import PackedLinear
from clearhead.errors import RunError
from clearhead.models.transformer import Memory, Transformer
from clearhead.parts.cache import Rows

NEVER_GENERATED = [PAD, BOS, UNK]
PIECE_TOKENS = {"cpu": 1024}
"""Source tokens that the encoder reads at a time, by device; elsewhere all."""
ENOUGH_TOKENS = 128
"""For a product to run at its full speed."""
BATCH_TOKENS = 8_192
"""Source tokens, padding included, that are decoded from side by side at most: of long texts fewer."""
CROWDED = 0.75
"""Places are given to other sentences when no more than this share of them are still being decoded."""


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

    number: int
    """Which of the sources it is."""
    source: Sequence[int]
    limit: int
    """The most tokens that its output may have, the end token not counted."""
    prefix: Sequence[int]
    draws: np.ndarray | None = None
    begun: int = 0
    """The column of `RunningSentences.ids` that holds its start token."""
    finished: list[Finished] = field(default_factory=list)

    def best(self, n: int) -> list[Finished]:
        """The `n` best finished hypotheses, the best first."""
        return sorted(self.finished, key=lambda hypothesis: -hypothesis.score)[:n]


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
    found = dict(search_each(model, sources, options, prefixes))
    return [found[number] for number in range(len(sources))]


def search_each(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    options: DecodingOptions,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> Iterator[tuple[int, list[Finished]]]:
    """The same, each output with the number of its source, as soon as it is there.

    Sources of one length side by side need little padding; the longest come first, so that memory shows early.
    """
    waiting = deque(
        make_sentence(number, sources[number], options, prefixes[number] if prefixes else ())
        for number in sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    )
    running = RunningSentences(model, options)
    while waiting or running.any_open:
        with torch.inference_mode():  # not around the whole: it would hold for the caller too, between two outputs
            running.admit(waiting)
            done = running.advance()
        for sentence in done:
            if not sentence.finished:
                raise RunError("the model gives no token any probability: its weights are not all finite numbers")
            yield sentence.number, sentence.best(options.n_best)


def make_sentence(number: int, source: Sequence[int], options: DecodingOptions, prefix: Sequence[int]) -> Sentence:
    """A source with its length limit, and its random numbers if the search draws."""
    limit = max(options.length_limit(len(source) - 1), len(prefix))
    draws = uniform_draws(options, source, limit) if options.sample else None
    return Sentence(number, source, limit, prefix, draws)


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
    """Neighbours together: at most `most_tokens` with padding, or one alone; and much shorter ones apart from longer
    ones, once these are enough for a product to run at its full speed."""
    start, longest, tokens = 0, 0, 0
    for place, source in enumerate(sources):
        too_many = max(longest, len(source)) * (place + 1 - start) > most_tokens
        if place > start and (too_many or (tokens >= ENOUGH_TOKENS and len(source) < 0.8 * longest)):
            yield sources[start:place]
            start, longest, tokens = place, 0, 0
        longest, tokens = max(longest, len(source)), tokens + len(source)
    yield sources[start:]


def uniform_draws(options: DecodingOptions, source: Sequence[int], limit: int) -> np.ndarray:
    """Random numbers for every step and hypothesis of a sentence, from the seed and the sentence alone."""
    generator = np.random.default_rng([options.seed, *source])
    return generator.random((limit + 1, options.hypotheses), dtype=np.float32)


class RunningSentences:
    """Sentences being decoded side by side, `k` hypotheses each. A closed hypothesis has the log-probability `-inf`."""

    def __init__(self, model: Transformer, options: DecodingOptions) -> None:
        self.model, self.options = model, options
        self.k = options.hypotheses
        self.sentences: list[Sentence] = []
        self.is_open: list[bool] = []
        """Of each sentence whether it is still being decoded."""
        self.ids: Tensor
        """`(b, k, t)`: what is decoded, with the latest tokens in the last column."""
        self.log_probabilities: Tensor
        """`(b, k)`"""

    @property
    def any_open(self) -> bool:
        """There is something left to decode."""
        return any(self.is_open)

    def admit(self, waiting: deque[Sentence]) -> None:
        """Once there are enough free places, give them to sentences that wait; if none waits, close the ranks."""
        open_places = sum(self.is_open)
        if open_places > CROWDED * len(self.sentences):
            return
        if not open_places:
            self.begin([waiting.popleft() for _ in range(self.places_for(waiting))])
        elif waiting and self.places_for(waiting) < 2 * len(self.sentences):
            free = [place for place, is_open in enumerate(self.is_open) if not is_open]
            self.replace(free[: len(waiting)], [waiting.popleft() for _ in free[: len(waiting)]])
        else:  # nothing waits; or what does is so much shorter that there will be room for more
            self.keep([place for place, is_open in enumerate(self.is_open) if is_open])

    def places_for(self, waiting: deque[Sentence]) -> int:
        """How many of those that wait, the longest of them first, can be decoded side by side."""
        most = min(len(waiting), self.options.batch_size // self.k, BATCH_TOKENS // len(waiting[0].source))
        return max(1, most)

    def begin(self, sentences: list[Sentence]) -> None:
        """Decode these sentences and no others."""
        memory = encode(self.model, [sentence.source for sentence in sentences])
        self.cache = self.model.start_cache(memory, beams=self.k)
        self.sentences, self.is_open = sentences, [True] * len(sentences)
        device = memory.mask.device
        self.ids = torch.full((len(sentences), self.k, 1), BOS, device=device)
        self.log_probabilities = torch.zeros(len(sentences), self.k, device=device)
        if not self.options.sample:  # the hypotheses begin alike: let only one of them fan out
            self.log_probabilities[:, 1:] = -math.inf

    def replace(self, places: list[int], newcomers: list[Sentence]) -> None:
        """Begin these sentences in the places of others, which are done."""
        begun = RunningSentences(self.model, self.options)
        begun.begin(newcomers)
        where = torch.tensor(places, device=self.ids.device)
        self.cache.replace_sentences(where, begun.cache)
        self.log_probabilities[where] = begun.log_probabilities
        self.ids[where, :, -1:] = begun.ids
        for place, sentence in zip(places, newcomers, strict=True):
            sentence.begun = self.ids.size(-1) - 1
            self.sentences[place], self.is_open[place] = sentence, True

    def keep(self, places: list[int]) -> None:
        """Let the others leave the grid and the cache."""
        where = torch.tensor(places, device=self.ids.device)
        self.sentences, self.is_open = [self.sentences[place] for place in places], [True] * len(places)
        self.ids, self.log_probabilities = self.ids[where], self.log_probabilities[where]
        self.cache.keep_sentences(where)

    def length(self, sentence: Sentence) -> int:
        """How many tokens of it are decoded; an end token counts, the start token doesn't."""
        return self.ids.size(-1) - 1 - sentence.begun

    def advance(self) -> list[Sentence]:
        """Decode one more token of every open hypothesis; returns the sentences that this completes."""
        rows = self.cache.rows = Rows(self.log_probabilities.isfinite())
        states = self.model.step_states(rows.gather(self.ids[:, :, -1:]), self.cache)[:, -1]
        choice, cut = self.choose(states, rows)
        if self.k > 1 and not self.options.sample:
            self.ids = self.ids.gather(1, choice.origins[:, :, None].expand_as(self.ids))
            self.cache.follow(choice.origins)
        self.ids = torch.cat([self.ids, choice.tokens[:, :, None]], -1)
        self.log_probabilities = choice.log_probabilities
        ended = (choice.tokens == EOS) & self.log_probabilities.isfinite()
        if not ended.any() and self.log_probabilities.isfinite().any(-1).tolist() == self.is_open:
            return []
        self.collect(ended, cut)
        self.log_probabilities = self.log_probabilities.masked_fill(ended, -math.inf)
        self.log_probabilities[self.done()] = -math.inf
        still_open = self.log_probabilities.isfinite().any(-1).tolist()
        done = [one for one, was, is_ in zip(self.sentences, self.is_open, still_open, strict=True) if was and not is_]
        self.is_open = still_open
        return done

    def choose(self, states: Float[Tensor, "r m"], rows: Rows) -> tuple[Choice, Bool[Tensor, "b k"]]:
        """Search or draw; says too which hypotheses are cut short."""
        options, device = self.options, states.device
        slots = torch.tensor([self.k - len(sentence.finished) for sentence in self.sentences], device=device)
        forced = self.forced_tokens()
        best = None
        if not forced and not options.sample:
            best = best_logits(self.model.projection, states, self.k)
        if best is not None:
            nobody = torch.zeros(rows.grid, dtype=torch.bool, device=device)
            return choose_best(self.log_probabilities, best, rows, slots), nobody
        logits = self.model.projection(states).float()
        normalizer = logits.logsumexp(-1)
        logits[:, NEVER_GENERATED] = -math.inf
        cut = rows.spread(force_tokens(logits, forced, rows))
        if not options.sample:
            candidates = best_candidates(logits, normalizer, self.k)
            choice = choose_best(self.log_probabilities, candidates, rows, slots)
            return choice, cut.gather(1, choice.origins)
        draws = [s.draws[min(self.length(s), s.limit)] for s in self.sentences if s.draws is not None]
        choice = choose_at_random(
            self.log_probabilities, logits, normalizer, rows, torch.from_numpy(np.stack(draws)).to(device),
            temperature=options.temperature, top_k=options.top_k, top_p=options.top_p,
        )  # fmt: skip
        return choice, cut

    def forced_tokens(self) -> dict[int, tuple[int, bool]]:
        """Of sentences that have no choice: the prefix' next token, or the end token at the limit; and whether the
        latter."""
        forced = {}
        for place in (place for place, is_open in enumerate(self.is_open) if is_open):
            sentence = self.sentences[place]
            length = self.length(sentence)
            if length < len(sentence.prefix):
                forced[place] = (sentence.prefix[length], False)
            elif length >= sentence.limit:
                forced[place] = (EOS, True)
        return forced

    def collect(self, ended: Bool[Tensor, "b k"], cut: Bool[Tensor, "b k"]) -> None:
        """Put hypotheses that have just ended aside, with their scores."""
        for place, column in ended.nonzero().tolist():
            sentence = self.sentences[place]
            total = float(self.log_probabilities[place, column])
            ids = self.ids[place, column, sentence.begun + 1 : -1].tolist()
            score = self.options.score(total, self.length(sentence))
            sentence.finished.append(Finished(ids, total, score, bool(cut[place, column])))

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


def best_logits(projection: nn.Linear, states: Float[Tensor, "r m"], count: int) -> Candidates | None:
    """Each hypothesis' best continuations, without all its logits; `None` where only torch can project."""
    if not isinstance(projection, PackedLinear):
        return None
    found = projection.best(states, count, torch.tensor(NEVER_GENERATED))
    if found is None:
        return None
    normalizer, best, tokens = found
    return Candidates(best - normalizer[:, None], tokens)


def force_tokens(logits: Float[Tensor, "r v"], forced: dict[int, tuple[int, bool]], rows: Rows) -> Bool[Tensor, " r"]:
    """Leave of these sentences' logits only those of their tokens; says which hypotheses that cuts short."""
    if not forced:
        return torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
    tokens, at_limit = torch.full(rows.grid, -1), torch.zeros(rows.grid, dtype=torch.bool)
    for place, (token, is_limit) in forced.items():
        tokens[place], at_limit[place] = token, is_limit
    tokens, at_limit = (rows.gather(grid.to(logits.device)) for grid in (tokens, at_limit))
    cut = at_limit & (logits.argmax(-1) != EOS)
    others = torch.arange(logits.size(-1), device=logits.device) != tokens[:, None]
    logits.masked_fill_(others & (tokens >= 0)[:, None], -math.inf)
    return cut
