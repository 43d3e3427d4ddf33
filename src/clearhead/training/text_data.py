"""What a language model learns from: a tokenizer and encoded documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from clearhead.errors import ConfigError
from clearhead.recipe import CorpusSection, DataSection, Recipe
from clearhead.run_folder import RunFolder, write_text_atomically
from clearhead.text.document_corpus import DocumentCorpus
from clearhead.text.documents import TextFiles, find_files, names_of, usable_documents
from clearhead.text.language_tokenizer import train_language_tokenizer
from clearhead.text.loading import load_language_tokenizer
from clearhead.text.packing import Block, BlockPlan, PackedBatch
from clearhead.text.pretrained import PretrainedTokenizer
from clearhead.text.readers import Selection, hold_out_texts

VALID_SHARE = 0.05


@dataclass(frozen=True)
class TextData:
    """All that the training loop reads."""

    tokenizer: PretrainedTokenizer
    train: DocumentCorpus
    valid: DocumentCorpus


@dataclass(frozen=True)
class TextSplit:
    """Which documents are for training and which for validation."""

    train: list[TextFiles]
    valid: list[TextFiles]
    train_selection: Selection | None = None
    valid_selection: Selection | None = None


def prepare_text_data(
    recipe: Recipe, folder: RunFolder, *, reads_whole_texts: bool, say: Callable[[str], None]
) -> TextData:
    """Read, split, tokenize and encode what the recipe names, into the run folder.

    What is there already, whole, is used as it is; so this can be killed at any moment and called again.
    `reads_whole_texts`: the model is one that fills gaps, so that its tokenizer has a mask.
    """
    split = split_documents(recipe.data, recipe.run.seed, say)
    tokenizer = _make_tokenizer(recipe, folder, split, reads_whole_texts=reads_whole_texts)
    if reads_whole_texts and tokenizer.control.mask is None:
        raise ConfigError(f"{folder.shared_tokenizer} has no mask token: it isn't that of a model that fills gaps")
    train = DocumentCorpus.build(folder.data / "train", split.train, tokenizer, select=split.train_selection)
    valid = DocumentCorpus.build(folder.data / "valid", split.valid, tokenizer, select=split.valid_selection)
    for name, corpus in (("train", train), ("valid", valid)):
        say(f"{name} documents: {corpus.report.summary()}; {len(corpus.ids):,} tokens")
    say(f"vocabulary: {tokenizer.vocab_size:,} tokens")
    return TextData(tokenizer, train, valid)


def split_documents(data: DataSection, seed: int, say: Callable[[str], None]) -> TextSplit:
    """Which documents are for training and which for validation.

    Without a validation set some are held out, chosen by their texts, so that doubles stay together. With a single
    document nothing can be held out; then validation takes the training text, and says so.
    """
    train = text_files(data.train, data)
    if data.valid is not None:
        return TextSplit(train, text_files(data.valid, data))
    share = VALID_SHARE if data.valid_split is None else data.valid_split
    texts = (document.text for document in usable_documents(train))
    try:
        selections = hold_out_texts(texts, seed=seed, count=None, share=share, names=names_of(train), noun="documents")
    except ConfigError:
        if data.valid_split is not None:
            raise
        say(
            "no validation text, and too few documents to hold some out: validating on the training text, which says "
            'nothing about other texts. Give data.valid, or cut the text with documents = "blank_lines" or "lines"'
        )
        return TextSplit(train, train)
    if data.valid_split is None:
        say("no validation text given (data.valid): some training documents are held out for it")
    return TextSplit(train, train, *selections)


def text_files(sections: Sequence[CorpusSection], data: DataSection) -> list[TextFiles]:
    """The files of a recipe's texts. A missing one is a `ConfigError`."""
    return [
        TextFiles(
            find_files(data.root, section.text or ""),
            documents=section.documents or "files",
            column=section.text_column or "text",
            weight=section.weight,
        )
        for section in sections
    ]


def _make_tokenizer(
    recipe: Recipe, folder: RunFolder, split: TextSplit, *, reads_whole_texts: bool
) -> PretrainedTokenizer:
    """Load the run's tokenizer, or learn it from the training documents and save it."""
    if not folder.shared_tokenizer.exists():
        kind, vocab_size, _ = recipe.tokenizer.side("source")
        selection = split.train_selection
        texts = (
            document.text
            for document in usable_documents(split.train)
            if selection is None or selection.chooses(document.text)
        )
        made, control = train_language_tokenizer(
            kind, texts, vocab_size=vocab_size, reads_whole_texts=reads_whole_texts
        )
        folder.write_control(control.to_dict())
        write_text_atomically(folder.shared_tokenizer, made)
    return load_language_tokenizer(folder)


class BlockEpoch:
    """The batches of an epoch of blocks; `make` turns some of them, and their numbers, into one."""

    def __init__(
        self, plan: BlockPlan, batch_tokens: int, make: Callable[[list[Block], list[int]], PackedBatch]
    ) -> None:
        self._plan, self._make = plan, make
        self._size = max(1, batch_tokens // plan.block_length)
        starts = np.arange(0, len(plan), self._size)
        self.largest = int(np.argmax(np.add.reduceat(plan.lengths, starts)))

    def __len__(self) -> int:
        return -(-len(self._plan) // self._size)

    def batch(self, number: int) -> PackedBatch:
        """The tensors of one batch."""
        numbers = list(range(number * self._size, min((number + 1) * self._size, len(self._plan))))
        return self._make([self._plan[one] for one in numbers], numbers)


def control_ids(tokenizer: PretrainedTokenizer) -> list[int]:
    """The ids that steer, and are no text."""
    control = tokenizer.control
    ids = {control.start, control.padding, control.unknown, control.mask, *control.end, *tokenizer.special_ids()}
    return sorted(id for id in ids if id is not None)


def spread(count: int, wanted: int) -> list[int]:
    """So many numbers below `count`, evenly apart."""
    wanted = min(wanted, count)
    return [place * count // wanted for place in range(wanted)]
