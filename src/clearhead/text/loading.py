"""The tokenizers of a run folder, whichever kind they are."""

from __future__ import annotations

from clearhead.errors import RunError
from clearhead.run_folder import RunFolder
from clearhead.text.control import Control
from clearhead.text.marian import MarianTokenizer, vocabulary_order
from clearhead.text.pretrained import PretrainedTokenizer
from clearhead.text.tokenizers import Tokenizer

AnyTokenizer = Tokenizer | MarianTokenizer


def load_tokenizers(folder: RunFolder) -> tuple[AnyTokenizer, AnyTokenizer]:
    """The source's and the target's; one and the same when shared. Raises `RunError` for files that can't be read."""
    source, target = folder.tokenizer_paths()
    fields = folder.read_control()
    if fields is None:
        first = Tokenizer.load(source)
        return first, first if source == target else Tokenizer.load(target)
    if not source.exists():
        raise RunError(f"{folder}: the model came without {source.name}; it can't read texts")
    control = Control.from_dict(fields)
    order = vocabulary_order(control, folder.read_config().target_vocab - (control.start == control.padding))
    vocabulary = folder.path / "vocab.json"
    return MarianTokenizer.load(source, vocabulary, order), MarianTokenizer.load(target, vocabulary, order)


def load_language_tokenizer(folder: RunFolder) -> PretrainedTokenizer:
    """That of a model with one side. Raises `RunError` when there is none, or it can't be read."""
    fields = folder.read_control()
    if fields is None or not folder.shared_tokenizer.exists():
        raise RunError(f"{folder}: the model came without a tokenizer.json; it can't read texts")
    return PretrainedTokenizer.load(folder.shared_tokenizer, Control.from_dict(fields))
