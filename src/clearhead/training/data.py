"""What a run learns from: tokenizers, encoded pairs, and the texts that validation translates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from clearhead.errors import ConfigError
from clearhead.recipe import CorpusSection, DataSection, Recipe
from clearhead.run_folder import RunFolder
from clearhead.text.corpus import Corpus, count_unknown
from clearhead.text.loading import AnyTokenizer, load_tokenizers
from clearhead.text.readers import CorpusFiles, Pair, Selection, hold_out, is_blank, read_pairs
from clearhead.text.tokenizers import Tokenizer, train_tokenizer

DEFAULT_VALID_SHARE, DEFAULT_VALID_PAIRS = 0.05, 500


@dataclass(frozen=True)
class ValidationTexts:
    """Some validation sources, each with every target that the validation pairs give it."""

    sources: list[str]
    references: list[list[str]]


@dataclass(frozen=True)
class TrainingData:
    """All that the training loop reads."""

    source_tokenizer: AnyTokenizer
    target_tokenizer: AnyTokenizer
    train: Corpus
    valid: Corpus
    valid_texts: ValidationTexts


@dataclass(frozen=True)
class Split:
    """Which pairs are for training and which for validation."""

    train: list[CorpusFiles]
    valid: list[CorpusFiles]
    train_selection: Selection | None = None
    valid_selection: Selection | None = None

    def train_pairs(self) -> Iterator[Pair]:
        """The training pairs as text."""
        return _usable_pairs(self.train, self.train_selection)

    def valid_pairs(self) -> Iterator[Pair]:
        """The validation pairs as text."""
        return _usable_pairs(self.valid, self.valid_selection)


def prepare_data(recipe: Recipe, folder: RunFolder, say: Callable[[str], None]) -> TrainingData:
    """Read, split, tokenize and encode what the recipe names, into the run folder.

    What is there already, whole, is used as it is; so this can be killed at any moment and called again. Both sets
    are read and checked here, so what is wrong with the validation set shows before the training starts.
    `say` is given what the user should know: what was left out, and why.
    """
    split = split_pairs(recipe.data, recipe.run.seed, say)
    source_tokenizer, target_tokenizer = _make_tokenizers(recipe, folder, split)
    corpora = {}
    for name, files, selection in (
        ("train", split.train, split.train_selection),
        ("valid", split.valid, split.valid_selection),
    ):
        corpora[name] = Corpus.build(
            folder.data / name,
            files,
            source_tokenizer,
            target_tokenizer,
            max_length=recipe.data.max_length,
            select=selection,
        )
        say(f"{name} pairs: {corpora[name].report.summary()}")
    say(f"vocabulary: {source_tokenizer.vocab_size:,} source and {target_tokenizer.vocab_size:,} target tokens")
    unknown = count_unknown(corpora["valid"])
    if unknown.source or unknown.target:
        say(f"valid pairs: {unknown.summary()}")
    texts = gather_texts(split.valid_pairs(), at_most=recipe.training.decoded_pairs)
    return TrainingData(source_tokenizer, target_tokenizer, corpora["train"], corpora["valid"], texts)


def split_pairs(data: DataSection, seed: int, say: Callable[[str], None]) -> Split:
    """Which pairs are for training and which for validation.

    Without a validation set some training pairs are held out, chosen by their source text, so that no validation
    source is ever trained on. With so few different sources that nothing can be held out, validation takes the
    training pairs, and says so.
    """
    if data.is_text:
        raise ConfigError("[data] has texts and no pairs")
    train = corpus_files(data.train, data.root)
    if data.valid is not None:
        return Split(train, corpus_files(data.valid, data.root))
    if data.valid_split is not None or data.valid_pairs is not None:
        return Split(train, train, *hold_out(train, seed=seed, pairs=data.valid_pairs, share=data.valid_split))
    enough = round(DEFAULT_VALID_PAIRS / DEFAULT_VALID_SHARE)
    is_large = sum(1 for _ in islice(_usable_pairs(train), enough)) == enough
    try:
        selections = hold_out(
            train,
            seed=seed,
            pairs=DEFAULT_VALID_PAIRS if is_large else None,
            share=None if is_large else DEFAULT_VALID_SHARE,
        )
    except ConfigError:
        say("no validation set, and too few different sources to hold some out: validating on the training pairs")
        return Split(train, train)
    say("no validation set given (data.valid): some training pairs are held out for it")
    return Split(train, train, *selections)


def corpus_files(sections: Sequence[CorpusSection], root: Path) -> list[CorpusFiles]:
    """The files of a recipe's corpora, their paths relative to `root`. A missing one is a `ConfigError`."""

    def locate(path: Path | None) -> Path | None:
        if path is None or (root / path).is_file():
            return None if path is None else root / path
        raise ConfigError(f"{path}: no such file in {root.absolute()}; set its folder with data.root")

    return [
        CorpusFiles(
            source=locate(section.source),
            target=locate(section.target),
            pairs=locate(section.pairs),
            format=section.format,
            source_column=section.source_column,
            target_column=section.target_column,
            weight=section.weight,
        )
        for section in sections
    ]


def gather_texts(pairs: Iterable[Pair], *, at_most: int) -> ValidationTexts:
    """Different sources, evenly spread over the pairs, each with all its targets as references.

    A source that occurs several times (a word with several pronunciations) is one test with several right answers.
    """
    references: dict[str, dict[str, None]] = {}
    for pair in pairs:
        references.setdefault(pair.source, {})[pair.target] = None
    sources = list(references)
    count = min(at_most, len(sources))
    chosen = [sources[i * len(sources) // count] for i in range(count)]
    return ValidationTexts(chosen, [list(references[source]) for source in chosen])


def _usable_pairs(corpora: Sequence[CorpusFiles], selection: Selection | None = None) -> Iterator[Pair]:
    for files in corpora:
        for pair in read_pairs(files):
            if not (is_blank(pair.source) or is_blank(pair.target)) and (selection is None or pair in selection):
                yield pair


def _make_tokenizers(recipe: Recipe, folder: RunFolder, split: Split) -> tuple[AnyTokenizer, AnyTokenizer]:
    """Load the run's tokenizers, or train them on the training pairs and save them."""
    if all(path.exists() for path in folder.tokenizer_paths()):
        return load_tokenizers(folder)
    if recipe.tokenizer.shared:
        both = (text for pair in split.train_pairs() for text in (pair.source, pair.target))
        shared = _make_tokenizer(recipe, "source", folder.shared_tokenizer, both)
        return shared, shared
    sources = (pair.source for pair in split.train_pairs())
    targets = (pair.target for pair in split.train_pairs())
    return (
        _make_tokenizer(recipe, "source", folder.source_tokenizer, sources),
        _make_tokenizer(recipe, "target", folder.target_tokenizer, targets),
    )


def _make_tokenizer(recipe: Recipe, side: Literal["source", "target"], path: Path, texts: Iterable[str]) -> Tokenizer:
    if not path.exists():
        kind, vocab_size, separator = recipe.tokenizer.side(side)
        train_tokenizer(kind, texts, vocab_size=vocab_size, separator=separator).save(path)
    return Tokenizer.load(path)
