"""Text in, text out: tokenizers, model and search together. Command, package and server all translate through here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import nn

from clearhead.control_tokens import EOS, UNK
from clearhead.decoding.layout import lay_out_for_few_rows
from clearhead.decoding.options import DecodingOptions, changed
from clearhead.decoding.parts_of_lines import in_parts, with_prefixes
from clearhead.decoding.search import Finished, search_each
from clearhead.decoding.streams import merge_streams, streams_of
from clearhead.device import resolve_device
from clearhead.errors import ConfigError, DataError, RunError
from clearhead.models.transformer import Transformer, load_weights
from clearhead.run_folder import RunFolder
from clearhead.text.batches import Batch, collate
from clearhead.text.lines import is_blank
from clearhead.text.loading import AnyTokenizer, load_tokenizers

if TYPE_CHECKING:
    from clearhead.inspection.sentence import Inspection

SCORED_PAIRS = 64
"""Scored side by side: logits of every position are large."""
SCORED_TOKENS = 8_192
"""At most so many, padding included: long texts are scored in smaller batches."""


@dataclass(frozen=True)
class Hypothesis:
    """One output for one source text."""

    text: str
    tokens: list[str]
    ids: list[int]
    log_probability: float
    """Natural logarithm, summed over the tokens and the end token: what `Translator.score` gives."""
    score: float
    """The log-probability divided by the length penalty: what hypotheses are ranked by."""
    hit_length_limit: bool = False
    """The output was cut at its length limit."""
    source_cut: bool = False
    """The source had more than `max_source_length` tokens; the rest was not read."""


EMPTY = Hypothesis("", [], [], 0.0, 0.0)
"""What a blank source becomes; no model is asked, for it would invent a sentence."""


@dataclass(frozen=True)
class PairScore:
    """How likely the model finds a given target."""

    log_probability: float
    """Natural logarithm, summed over the target's tokens and the end token."""
    tokens: int
    """How many those are."""
    source_cut: bool = False
    """The source had more than `max_source_length` tokens; as in `Hypothesis`, the rest was not read."""


@dataclass(frozen=True)
class _Request:
    """A source on its way through the search."""

    place: int
    ids: list[int]
    prefix: list[int]
    cut: bool

    @property
    def length(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class _Pair:
    """A source and a target on their way to be scored."""

    place: int
    source: list[int]
    target: list[int]
    cut: bool

    @property
    def length(self) -> int:
        return 1 + max(len(self.source), len(self.target))


class Translator:
    """A trained model with its tokenizers. `clearhead.load(run)` makes one from a run folder.

    A text's result doesn't depend on the other texts of the call, on their order, or on the batch size.
    """

    def __init__(
        self,
        model: Transformer,
        source_tokenizer: AnyTokenizer,
        target_tokenizer: AnyTokenizer,
        options: DecodingOptions | None = None,
    ) -> None:
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.options = options or DecodingOptions()

    @classmethod
    def load(cls, run: Path | str, *, device: str = "auto", precision: str = "float32") -> Translator:
        """Load a run folder: its best weights, its tokenizers, its recipe's `[decoding]`.

        Args:
            run: the folder.
            device: where to decode.
            precision: of matrix products on a CPU: "float32"; "int16", which is faster and of which a log-probability
                differs by about 0.001; or "int8", faster still, which changes one output in ten (`clearhead.kernels`).

        Raises:
            RunError: the folder holds no trained run.
            ConfigError: the machine can't multiply in that precision.
        """
        folder = RunFolder(run).require()
        config = folder.read_config()
        if config.architecture != "encoder-decoder":
            raise ConfigError(
                f"{folder}: holds a model of architecture {config.architecture!r}, which doesn't translate"
            )
        is_imported = folder.imported.exists()
        options = DecodingOptions(**({} if is_imported else folder.read_recipe().decoding.model_dump()))
        model = Transformer(config).to(resolve_device(device)).eval()
        load_weights(model, folder.model)
        lay_out_for_few_rows(model, precision)
        source, target = folder.tokenizer_paths()
        source_tokenizer, target_tokenizer = load_tokenizers(folder)
        require_room(folder, source, source_tokenizer.vocab_size, model.config.source_vocab)
        require_room(folder, target, target_tokenizer.vocab_size, model.config.target_vocab)
        return cls(model, source_tokenizer, target_tokenizer, options)

    @overload
    def translate(self, texts: str, *, prefixes: str | None = None, **changes: Any) -> str: ...
    @overload
    def translate(
        self, texts: Sequence[str], *, prefixes: str | Sequence[str] | None = None, **changes: Any
    ) -> list[str]: ...
    def translate(
        self, texts: str | Sequence[str], *, prefixes: str | Sequence[str] | None = None, **changes: Any
    ) -> str | list[str]:
        """The best output for a text, or for each of several.

        Args:
            texts: one text or several.
            prefixes: what the output has to begin with: one for all, or one for each text.
            changes: fields of `DecodingOptions` to change for this call, such as `beam_size=1`.
        """
        if isinstance(texts, str):
            return self.hypotheses([texts], prefixes=prefixes, **changes)[0][0].text
        return [found[0].text for found in self.hypotheses(texts, prefixes=prefixes, **changes)]

    def hypotheses(
        self, texts: Sequence[str], *, prefixes: str | Sequence[str] | None = None, **changes: Any
    ) -> list[list[Hypothesis]]:
        """The `n_best` outputs of each text, the best first; fewer only where no more exist within the length limit.

        Arguments as in `translate`.
        """
        options = changed(self.options, changes)
        if isinstance(prefixes, str):
            prefixes = [prefixes] * len(texts)
        if prefixes is not None and len(prefixes) != len(texts):
            raise DataError(f"{len(texts)} texts, but {len(prefixes)} prefixes; give one for each, empty where none")
        requests = self._requests(texts, prefixes, options)
        results: list[list[Hypothesis]] = [[EMPTY] * options.n_best for _ in texts]
        requests.sort(key=lambda request: -request.length)  # so that each stream has as much to do

        def decode(stream: Sequence[_Request]) -> Iterator[tuple[_Request, list[Finished]]]:
            sources, prefixes = [request.ids for request in stream], [request.prefix for request in stream]
            for number, finished in search_each(self.model, sources, options, prefixes):
                yield stream[number], finished

        with evaluating(self.model):
            streams = [decode(stream) for stream in streams_of(requests, self._device())]
            for request, finished in merge_streams(streams):
                results[request.place] = [self._hypothesis(one, request.cut) for one in finished]
        return results

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        prefixes: str | Iterable[str] | None = None,
        chunk: int | None = None,
        must_wait: Callable[[], bool] = lambda: False,
        **changes: Any,
    ) -> Iterator[list[Hypothesis]]:
        """The `n_best` outputs line by line, in the order of the lines, holding only `chunk` of them in memory.

        `must_wait` says whether the next line has still to arrive: then those that are there are translated first.

        Raises `DataError` when there are not as many prefixes as lines.
        """
        options = changed(self.options, changes)
        size = chunk or 4 * options.batch_size
        for part in in_parts(with_prefixes(lines, prefixes), size, must_wait):
            texts, begun = [text for text, _ in part], [prefix for _, prefix in part]
            yield from self.hypotheses(texts, prefixes=begun, **dataclasses.asdict(options))

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
        """How likely each target is, given its source (its first `max_source_length` tokens, as in translating)."""
        if len(sources) != len(targets):
            raise DataError(f"{len(sources)} sources, but {len(targets)} targets; each source needs its target")
        longest = self.options.max_source_length
        encoded = zip(
            self.source_tokenizer.encode_batch(sources), self.target_tokenizer.encode_batch(targets), strict=True
        )
        pairs = [_Pair(place, ids[:longest], target, len(ids) > longest) for place, (ids, target) in enumerate(encoded)]
        pairs.sort(key=lambda pair: -pair.length)
        scores: list[PairScore] = [PairScore(0.0, 0)] * len(pairs)
        with evaluating(self.model), torch.inference_mode():
            for part in batches_of_pairs(pairs):
                batch = collate([(pair.source, pair.target) for pair in part]).to(self._device())
                for pair, total in zip(part, log_probabilities(self.model, batch), strict=True):
                    scores[pair.place] = PairScore(total, len(pair.target) + 1, pair.cut)
        return scores

    def inspect(self, text: str, *, target: str | None = None, alternatives: int = 5, **changes: Any) -> Inspection:
        """Translate a text and show how: all attention maps, each step's probabilities, an alignment.

        The maps are those of one pass over the best hypothesis, and not of a second decoding.

        Args:
            text: the source.
            target: look at this translation instead of decoding one.
            alternatives: how many of the likeliest tokens to keep for each step.
            changes: fields of `DecodingOptions` to change, as in `translate`.

        Raises:
            DataError: a blank text: no model is asked about it.
        """
        if alternatives < 1:
            raise ConfigError(f"alternatives = {alternatives}: has to be a whole number of at least 1")
        from clearhead.inspection.sentence import look_inside  # not what everyone who translates waits for

        requests = self._requests([text], None, changed(self.options, changes))
        if not requests:
            raise DataError(f"{text!r} is blank: there is nothing to look into")
        best = self.hypotheses([text], **changes)[0][0] if target is None else None
        target_ids = self.target_tokenizer.encode(target or "") if best is None else best.ids
        with evaluating(self.model):
            return look_inside(
                self.model, (self.source_tokenizer, self.target_tokenizer), text, requests[0].ids, target_ids,
                alternatives=alternatives, source_cut=requests[0].cut,
                hit_length_limit=best is not None and best.hit_length_limit,
            )  # fmt: skip

    def _requests(
        self, texts: Sequence[str], prefixes: Sequence[str] | None, options: DecodingOptions
    ) -> list[_Request]:
        """Every text that is not blank, as ids that end with the end token.

        Raises `DataError` for a prefix that the target's vocabulary can't spell.
        """
        places = [place for place, text in enumerate(texts) if not is_blank(text)]
        encoded = self.source_tokenizer.encode_batch([texts[place] for place in places])
        begun = self.target_tokenizer.encode_batch([prefixes[place] if prefixes else "" for place in places])
        for place, prefix in zip(places, begun, strict=True):
            if prefixes and UNK in prefix:
                raise DataError(
                    f"no output can begin with {prefixes[place]!r}: the model's vocabulary lacks what is � in "
                    f"{self.target_tokenizer.decode(prefix)!r}"
                )
        longest = options.max_source_length
        return [
            _Request(place, [*ids[:longest], EOS], prefix, len(ids) > longest)
            for place, ids, prefix in zip(places, encoded, begun, strict=True)
            if ids  # nothing but separators is as blank as nothing
        ]

    def _hypothesis(self, finished: Finished, cut: bool) -> Hypothesis:
        return Hypothesis(
            text=self.target_tokenizer.decode(finished.ids),
            tokens=self.target_tokenizer.tokens(finished.ids),
            ids=finished.ids,
            log_probability=finished.log_probability,
            score=finished.score,
            hit_length_limit=finished.hit_length_limit,
            source_cut=cut,
        )

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def load(run: Path | str, *, device: str = "auto", precision: str = "float32") -> Translator:
    """Load a trained run folder, ready to translate (`Translator.load`)."""
    return Translator.load(run, device=device, precision=precision)


def require_room(folder: RunFolder, file: Path, tokens: int, room: int) -> None:
    """Refuse a tokenizer that makes tokens that the model doesn't know."""
    if tokens > room:
        raise RunError(f"{file} has {tokens} tokens, but the model in {folder} only {room}: they are of different runs")


def batches_of_pairs(pairs: Sequence[_Pair]) -> Iterator[list[_Pair]]:
    """At most `SCORED_PAIRS` pairs and `SCORED_TOKENS` padded tokens each; the pairs come longest first."""
    batch: list[_Pair] = []
    for pair in pairs:
        if batch and (len(batch) == SCORED_PAIRS or (len(batch) + 1) * batch[0].length > SCORED_TOKENS):
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch


def log_probabilities(model: Transformer, batch: Batch) -> list[float]:
    """The log-probability of each pair's target, end token included."""
    logits = model(batch.source, batch.decoder_input, rows=batch.rows)
    labels = batch.labels.flatten()[batch.rows]
    chosen = logits.float().log_softmax(-1).gather(1, labels[:, None]).squeeze(1).double()
    sentences = batch.rows // batch.labels.size(1)
    totals = torch.zeros(batch.labels.size(0), dtype=torch.float64, device=chosen.device)
    return totals.index_add(0, sentences, chosen).tolist()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout off, and back to what it was: a model may be in the midst of its training."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
