"""A prompt in, what follows out: tokenizer, model and loop of a GPT or a LLaMA together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor

from clearhead.decoding.generation import Continuation, RunningTexts, Text, generate, make_text
from clearhead.decoding.generation_options import GenerationOptions
from clearhead.decoding.translator import evaluating
from clearhead.errors import ConfigError, DataError
from clearhead.models.gpt import GPT
from clearhead.text.pretrained import PretrainedTokenizer

SCORED_TOKENS = 4_096
"""Tokens, padding included, that are scored side by side."""


@dataclass(frozen=True)
class Generated:
    """What follows one prompt."""

    text: str
    """Without the prompt, and without the string or the token that ended it."""
    ids: list[int]
    tokens: list[str]
    log_probability: float
    """Natural logarithm, summed over the tokens added and the end token."""
    ended: bool
    """The model, or a stop string, ended the text; otherwise the limit of tokens did."""


@dataclass(frozen=True)
class TextScore:
    """How likely the model finds a text."""

    log_probability: float
    """Natural logarithm, summed over the tokens that were predicted."""
    tokens: int
    """How many those are: all but the first, for which nothing is given; the start token doesn't count."""


class TextGenerator:
    """A model that goes on with texts, and its tokenizer. `clearhead.load(run)` makes one from a run folder.

    A prompt's result doesn't depend on the other prompts of the call, on their order, or on the batch size.
    """

    def __init__(self, model: GPT, tokenizer: PretrainedTokenizer, options: GenerationOptions | None = None) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.options = options or GenerationOptions()

    @overload
    def generate(self, prompts: str, *, template: str | None = None, **changes: Any) -> str: ...
    @overload
    def generate(self, prompts: Sequence[str], *, template: str | None = None, **changes: Any) -> list[str]: ...
    def generate(self, prompts: str | Sequence[str], *, template: str | None = None, **changes: Any) -> str | list[str]:
        """What follows a prompt, or each of several.

        Args:
            prompts: one or several.
            template: what stands around each prompt, the prompt being at its `{}`; control tokens can be named in it.
            changes: fields of `GenerationOptions` to change for this call, such as `sample=True`.
        """
        if isinstance(prompts, str):
            return self.continuations([prompts], template=template, **changes)[0].text
        return [found.text for found in self.continuations(prompts, template=template, **changes)]

    def continuations(self, prompts: Sequence[str], *, template: str | None = None, **changes: Any) -> list[Generated]:
        """What follows each prompt, with its tokens and its log-probability. Arguments as in `generate`."""
        options = changed(self.options, changes)
        encoded = self._encode(prompts, template)
        order = sorted(range(len(prompts)), key=lambda place: -len(encoded[place]))
        results: dict[int, Generated] = {}
        with evaluating(self.model):
            for first in range(0, len(order), options.batch_size):
                places = order[first : first + options.batch_size]
                batch = [encoded[place] for place in places]

                def stops(place: int, ids: list[int], batch: list[list[int]] = batch) -> bool:
                    return any(text in self._added_text(batch[place], ids) for text in options.stop)

                found = generate(
                    self.model, batch, options,
                    end=self.tokenizer.control.end, is_finished=stops if options.stop else None,
                )  # fmt: skip
                results |= {
                    place: self._generated(encoded[place], one, options)
                    for place, one in zip(places, found, strict=True)
                }
        return [results[place] for place in range(len(prompts))]

    def stream(self, prompt: str, *, template: str | None = None, **changes: Any) -> Iterator[str]:
        """What follows a prompt, piece by piece as it is found; joined it is what `generate` returns.

        A piece is held back while it may be the beginning of a stop string, or of a character. Raises `ConfigError` for
        a beam, which doesn't know its first token before it has the last.
        """
        options = changed(self.options, changes)
        if options.beam_size > 1:
            raise ConfigError(f"beam_size = {options.beam_size} can't be streamed; use greedy search, or sample")
        ids = self._encode([prompt], template)[0]
        shown = ""
        for added, is_last in self._one_by_one(ids, options):
            text, stopped = cut_at(self._added_text(ids, added), options.stop)
            is_last = is_last or stopped
            sure = text if is_last else text[: len(text) - unsure_length(text, options.stop)]
            if len(sure) > len(shown):
                yield sure[len(shown) :]
                shown = sure
            if is_last:
                return

    def score(self, texts: Sequence[str]) -> list[TextScore]:
        """How likely each text is, each token given those before it.

        Of texts longer than the model's context each token sees at least half a context of what is before it.
        """
        encoded = self._encode(texts, None)
        context = self.model.config.max_positions or max(len(ids) for ids in encoded)
        windows = [(place, *window) for place, ids in enumerate(encoded) for window in cut_windows(ids, context)]
        windows.sort(key=lambda window: -len(window[1]))
        totals, counts = [0.0] * len(texts), [0] * len(texts)
        with evaluating(self.model), torch.inference_mode():
            while windows:
                size = max(1, SCORED_TOKENS // len(windows[0][1]))
                batch, windows = windows[:size], windows[size:]
                for (place, ids, known), chosen in zip(batch, self._log_probabilities(batch), strict=True):
                    totals[place] += float(chosen[known - 1 : len(ids) - 1].sum())
                    counts[place] += len(ids) - known
        return [TextScore(total, count) for total, count in zip(totals, counts, strict=True)]

    def _log_probabilities(self, windows: Sequence[tuple[int, list[int], int]]) -> Tensor:
        """`(b, t - 1)`: that of each token but the first."""
        longest = max(len(ids) for _, ids, _ in windows)
        padded = torch.tensor([ids + [0] * (longest - len(ids)) for _, ids, _ in windows], device=self._device())
        logits = self.model(padded[:, :-1]).float()
        return logits.log_softmax(-1).gather(-1, padded[:, 1:, None]).squeeze(-1).double()

    def _one_by_one(self, prompt: list[int], options: GenerationOptions) -> Iterator[tuple[list[int], bool]]:
        """All ids added so far, after each token; and whether these are all."""
        text: Text = make_text(self.model, 0, prompt, options)
        if not text.limit:
            return
        with evaluating(self.model), torch.inference_mode():
            running = RunningTexts(self.model, [text], options, list(self.tokenizer.control.end), None)
            while running.texts:
                running.advance()
                if not text.finished:
                    yield running.added[0, 0].tolist(), False
            yield text.best().ids, True

    def _encode(self, texts: Sequence[str], template: str | None) -> list[list[int]]:
        """Ids of prompts. Raises `DataError` for one that is empty or longer than the model can read."""
        if template is None:
            encoded = self.tokenizer.encode_batch(texts)
        elif "{}" in template:
            encoded = [self.tokenizer.encode_in(template, text) for text in texts]
        else:
            raise ConfigError(f"the template {template!r} has no {{}}, where the prompt is to stand")
        room = self.model.config.max_positions if self.model.config.positions == "learned" else None
        for number, ids in enumerate(encoded, start=1):
            if not ids and self.tokenizer.control.start is not None:
                ids.append(self.tokenizer.control.start)
            if not ids:
                raise DataError(f"prompt {number} is empty, and this model has no start token to begin with")
            if room is not None and len(ids) > room:
                raise DataError(f"text {number} has {len(ids)} tokens, but this model reads {room} at most")
        return encoded

    def _generated(self, prompt: list[int], found: Continuation, options: GenerationOptions) -> Generated:
        text, _ = cut_at(self._added_text(prompt, found.ids), options.stop)
        return Generated(text, found.ids, self.tokenizer.tokens(found.ids), found.log_probability, found.ended)

    def _added_text(self, prompt: list[int], added: list[int]) -> str:
        """The text of what was added. Decoded together with the prompt: a space may belong to what is before it."""
        before, whole = self.tokenizer.decode(prompt), self.tokenizer.decode(prompt + added)
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(added)

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def changed(options: GenerationOptions, changes: dict[str, Any]) -> GenerationOptions:
    """The options with some fields changed. Raises `ConfigError` for a field that there is not."""
    known = [field.name for field in dataclasses.fields(GenerationOptions)]
    for name in changes:
        if name not in known:
            raise ConfigError(f"generation has no option {name!r}; the options are {', '.join(known)}")
    if isinstance(changes.get("stop"), list):
        changes = {**changes, "stop": tuple(changes["stop"])}
    return dataclasses.replace(options, **changes)


def cut_at(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """The text before the first stop string, and whether there was one."""
    places = [place for place in (text.find(string) for string in stop) if place >= 0]
    return (text[: min(places)], True) if places else (text, False)


def unsure_length(text: str, stop: Sequence[str]) -> int:
    """How many characters at the end may yet become a stop string, or are only part of a character."""
    broken = len(text) - len(text.rstrip("�"))
    begun = [n for string in stop for n in range(1, len(string)) if text.endswith(string[:n])]
    return max([broken, *begun])


def cut_windows(ids: list[int], context: int) -> Iterator[tuple[list[int], int]]:
    """Windows of at most `context` ids that cover a text, and how many at the beginning of each are only looked at."""
    yield ids[:context], 1
    step = max(1, context // 2)
    end = context
    while end < len(ids):
        known_from = end
        end = min(len(ids), end + step)
        start = end - context
        yield ids[start:end], known_from - start
