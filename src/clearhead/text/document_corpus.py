"""Encoded documents in a memory-mapped cache, so that a corpus may be larger than memory.

The folder has three files:

    corpus.json     what was encoded, how, and what was left out
    text.ids        the token ids of all documents one after another, control tokens included
    text.offsets    where each begins, n + 1 numbers: document i is text.ids[offsets[i]:offsets[i + 1]]
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import DataError
from clearhead.text.corpus import CorpusPart
from clearhead.text.documents import Document, TextFiles, names_of, read_documents
from clearhead.text.encoded_cache import Ids, SideWriter, broken, build, description, file_states, map_side
from clearhead.text.filtering import LITERAL_CONTROL, FilterReport, note
from clearhead.text.lines import is_blank
from clearhead.text.pretrained import PretrainedTokenizer
from clearhead.text.readers import Selection

CACHE_VERSION = 1
DOCUMENTS_AT_A_TIME = 4096
CHARACTERS_AT_A_TIME = 1 << 20


class DocumentCorpus:
    """Documents as token ids on the disk. Made by `DocumentCorpus.build`.

    A document is what the tokenizer makes of its text, the control tokens that it puts around a text included, and the
    end token behind it if the model has one: a model that goes on with texts learns from it where to end.

    Attributes:
        parts: which documents came from which files, and their weights.
        report: what was kept and what was left out.
        ids: all documents' ids one after another.
        offsets: where each document begins in them: `(n + 1,)`.
    """

    def __init__(self, directory: Path, found: dict[str, Any]) -> None:
        self.directory = directory
        self.parts = tuple(CorpusPart(**part) for part in found["parts"])
        self.report = FilterReport.from_dict(found["report"])
        self.ids: Ids
        self.ids, self.offsets = map_side(directory, "text", found)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The tokens of each document: `(n,)`."""
        return np.diff(self.offsets)

    def document(self, index: int) -> Ids:
        """The ids of one document."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @classmethod
    def build(
        cls,
        directory: Path,
        corpora: Sequence[TextFiles],
        tokenizer: PretrainedTokenizer,
        *,
        select: Selection | None = None,
    ) -> "DocumentCorpus":
        """Encode documents into `directory`, or open what lies there if it was made of the same files in the same way.

        Args:
            directory: the cache's folder. An older cache there is replaced, anything else is left alone.
            corpora: what to encode, one after another.
            tokenizer: for all of them.
            select: only these documents: one side of `hold_out_texts`.

        Raises:
            DataError: a file can't be read, or no document is left.
            RunError: `directory` holds something else, or can't be written.
        """
        made_of = {
            "version": CACHE_VERSION,
            "files": [
                [file_states(files.paths, files.name), files.documents, files.column, files.weight] for files in corpora
            ],
            "tokenizers": [tokenizer.fingerprint()],
            "select": None if select is None else [select.seed, select.threshold, select.held_out],
        }
        build(directory, made_of, lambda temporary: _write(temporary, corpora, tokenizer, select))
        try:
            return cls(directory, description(directory))
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise broken(directory, error) from error


def _write(
    directory: Path, corpora: Sequence[TextFiles], tokenizer: PretrainedTokenizer, select: Selection | None
) -> dict[str, Any]:
    """Encode everything that isn't blank; returns what `corpus.json` says of it."""
    report = FilterReport(noun="documents")
    parts: list[dict[str, Any]] = []
    with SideWriter(directory, "text", tokenizer.vocab_size) as writer:
        for files in corpora:
            start = report.kept
            for chunk in _chunks(_kept(files, select, report)):
                writer.append([with_end(ids, tokenizer) for ids in tokenizer.encode_batch(chunk)])
            parts.append({"name": files.name, "start": start, "stop": report.kept, "weight": files.weight})
    if not report.kept:
        raise DataError(f"no document to use in {names_of(corpora)}: {report.summary()}")
    text = {"type": writer.type, "ids": writer.id_count, "texts": writer.text_count}
    return {"parts": parts, "text": text, "report": report.to_dict()}


def with_end(ids: list[int], tokenizer: PretrainedTokenizer) -> list[int]:
    """A text's ids and the end token, unless the tokenizer has put it there."""
    end = tokenizer.control.end
    return ids if not end or ids[-1:] == [end[0]] else [*ids, end[0]]


def _kept(files: TextFiles, select: Selection | None, report: FilterReport) -> Iterator[str]:
    """The documents to encode; the report is written along."""
    for document in read_documents([files]):
        if is_blank(document.text):
            note(report.dropped, "blank", document.file, document.line)
        elif select is None or select.chooses(document.text):
            report.kept += 1
            _notice_control(document, report)
            yield document.text


def _notice_control(document: Document, report: FilterReport) -> None:
    if "<" in document.text and LITERAL_CONTROL.search(document.text):
        reason = "with <pad>, </s> or the like, taken as ordinary text"
        note(report.notices, reason, document.file, document.line)


def _chunks(texts: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    characters = 0
    for text in texts:
        chunk.append(text)
        characters += len(text)
        if len(chunk) == DOCUMENTS_AT_A_TIME or characters >= CHARACTERS_AT_A_TIME:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
