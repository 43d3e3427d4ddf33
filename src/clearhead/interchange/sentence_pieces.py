"""From vocabularies in other forms to a tokenizer of the tokenizers library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from clearhead.errors import ConfigError, RunError
from clearhead.text.control import Control

LLAMA_3_WORD = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
"""How LLaMA 3 cuts a text into words."""


class Piece(NamedTuple):
    """An entry of a SentencePiece vocabulary; a space is `▁`."""

    text: str
    score: float


def byte_fallback_tokenizer(pieces: Sequence[Piece], control: Control) -> str:
    """SentencePiece's BPE as LLaMA 1 and 2 have it: a space before the text, merges by score, bytes for the rest."""
    ids = {piece.text: id for id, piece in enumerate(pieces)}
    merges = merges_by_score(pieces, ids)
    unknown = pieces[control.unknown or 0].text
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab=ids, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    names = [pieces[id].text for id in (control.unknown, control.start, *control.end) if id is not None]
    add_control_tokens(tokenizer, list(dict.fromkeys(names)))
    begin_with(tokenizer, control.start, ids=ids)
    return tokenizer.to_str()


def merges_by_score(pieces: Sequence[Piece], ids: dict[str, int]) -> list[tuple[str, str]]:
    """Every way to put a piece together from two others, the best pieces first."""
    merges = []
    for text, score in pieces:
        halves = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        ways = [(left, right) for left, right in halves if left in ids and right in ids]
        merges += [(score, pair) for pair in sorted(ways, key=lambda pair: (ids[pair[0]], ids[pair[1]]))]
    merges.sort(key=lambda merge: -merge[0])
    return [pair for _, pair in merges]


def byte_level_tokenizer(
    tokens: Sequence[str], merges: Sequence[str], *, kind: str, control_names: Sequence[str], start: int | None
) -> str:
    """GPT-2's BPE over bytes; `kind` says how texts are cut into words before.

    Raises `ConfigError` for a kind that isn't known.
    """
    words: dict[str, list[Any]] = {
        "gpt-2": [],
        "default": [],
        "smollm": [pre_tokenizers.Digits(individual_digits=True)],
        "llama-bpe": [pre_tokenizers.Split(Regex(LLAMA_3_WORD), "isolated")],
    }
    if kind not in words:
        raise ConfigError(f"a tokenizer that cuts words like {kind!r} is not known here; known are {', '.join(words)}")
    ids = {token: id for id, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=pairs, ignore_merges=kind == "llama-bpe"))
    by_gpt_2s_words = kind != "llama-bpe"
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=by_gpt_2s_words)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*words[kind], last])
    tokenizer.decoder = decoders.ByteLevel()
    add_control_tokens(tokenizer, control_names)
    begin_with(tokenizer, start, ids=ids)
    return tokenizer.to_str()


def add_control_tokens(tokenizer: tokenizers.Tokenizer, names: Sequence[str]) -> None:
    """Make tokens of the vocabulary known as control tokens, which no text has unless it is asked to."""
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names])


def begin_with(tokenizer: tokenizers.Tokenizer, start: int | None, *, ids: dict[str, int]) -> None:
    """Put the start token before every text."""
    if start is None:
        return
    name = next(token for token, id in ids.items() if id == start)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{name}:0 $A:0", pair=f"{name}:0 $A:0 {name}:1 $B:1", special_tokens=[(name, start)]
    )


def read_sentencepiece_model(path: Path, control: Control) -> str:
    """The tokenizer of a `tokenizer.model` as LLaMA 1 and 2 have it.

    Raises `ConfigError` when the sentencepiece library is missing, `RunError` for a file that isn't one of its models.
    """
    try:
        import sentencepiece
    except ImportError:
        raise ConfigError(f'{path}: to read it, pip install "clearhead[hf]" (the sentencepiece library)') from None
    try:
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise RunError(f"{path}: not a model of SentencePiece ({error})") from None
    pieces = [Piece(model.id_to_piece(id), model.get_score(id)) for id in range(model.get_piece_size())]
    if not any(model.is_byte(id) for id in range(len(pieces))):
        raise RunError(f"{path}: only vocabularies with bytes to fall back on, like LLaMA's, are known here")
    return byte_fallback_tokenizer(pieces, control)


def control_names(tokenizer_json: str) -> dict[str, int]:
    """The control tokens of a tokenizer, by name."""
    return {token["content"]: token["id"] for token in json.loads(tokenizer_json).get("added_tokens", [])}
