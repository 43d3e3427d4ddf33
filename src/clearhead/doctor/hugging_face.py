"""Models of the transformers library as patients: encoder-decoder, decoder-only and encoder-only ones."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.doctor.patient import Patient, TextSide
from clearhead.errors import ConfigError, RunError


def transformers_library() -> Any:
    """The library. Raises `ConfigError` when it is missing."""
    try:
        import transformers
    except ImportError:
        raise ConfigError('a Hugging Face model needs the transformers library: pip install "clearhead[hf]"') from None
    return transformers


def hugging_face_patient(path: Path) -> Patient:
    """The model in a folder as `save_pretrained` writes it, with its tokenizer if there is one.

    Raises `RunError` when the folder can't be read, `ConfigError` when transformers is missing.
    """
    transformers = transformers_library()
    try:
        config = transformers.AutoConfig.from_pretrained(str(path), local_files_only=True)
        trained = auto_class(config).from_pretrained(str(path), local_files_only=True, dtype=torch.float32)
    except Exception as error:  # the library and those below it raise errors of many kinds for files that are broken
        reason = (str(error).splitlines() or [""])[0]
        raise RunError(f"{path}: not a model that transformers can load: {type(error).__name__}: {reason}") from error
    return config_patient(config, name=str(path), trained=trained.eval(), text_sides=tokenizer_side(path))


def auto_class(config: Any) -> Any:
    """The class with the head that fits: sequence to sequence, causal, or masked tokens."""
    transformers = transformers_library()
    architecture = (config.architectures or [""])[0]
    if config.is_encoder_decoder:
        return transformers.AutoModelForSeq2SeqLM
    if "MaskedLM" in architecture or config.model_type in ("bert", "roberta", "distilbert", "albert", "electra"):
        return transformers.AutoModelForMaskedLM
    return transformers.AutoModelForCausalLM


def config_patient(config: Any, *, name: str, **more: Any) -> Patient:
    """A patient that is built from a configuration, with random weights, and called as the library means it to be."""
    kind = auto_class(config)
    build = lambda: kind.from_config(config)  # noqa: E731
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    vocabulary = text.vocab_size
    ids = control_ids(config)
    eos = first_of(ids["eos"], ids["sep"], 2)
    common: dict[str, Any] = {"build": build, "name": name, "vocabulary": vocabulary, "eos": eos, **more}
    positions = longest_input(config, build, more.get("trained"))
    if config.is_encoder_decoder:
        start = first_of(ids["decoder_start"], ids["bos"], ids["pad"], 0)
        pad = first_of(ids["pad"], 0)
        return Patient(
            kind="encoder-decoder", call=call_encoder_decoder(pad), pad=pad, bos=start, max_length=positions,
            loss=loss_of_encoder_decoder(pad), cached=cached_encoder_decoder(pad), decode=generate(pad, start, eos),
            other_control=frozenset(ids_of(config)), **common,
        )  # fmt: skip
    if "MaskedLM" in kind.__name__:
        pad = first_of(ids["pad"], 0)
        return Patient(
            kind="encoder", call=call_encoder(pad), pad=pad, bos=first_of(ids["bos"], pad),
            max_length=positions, other_control=frozenset(ids_of(config)), **common,
        )  # fmt: skip
    pad = spare_id(config, vocabulary)
    return Patient(
        kind="decoder", call=call_decoder(pad), pad=pad, bos=first_of(ids["bos"], eos),
        left_padding=True, max_length=positions, loss=loss_of_decoder(pad), cached=cached_decoder,
        other_control=frozenset(ids_of(config)), **common,
    )  # fmt: skip


def longest_input(config: Any, build: Any, trained: Any) -> int | None:
    """How many tokens the model says it takes; RoBERTa and its kin begin to count behind the padding's id."""
    positions = getattr(config, "max_position_embeddings", None)
    if trained is None:
        with torch.device("meta"):
            trained = build()
    for name, module in trained.named_modules():
        if "position" in name and isinstance(module, torch.nn.Embedding) and module.num_embeddings == positions:
            return positions - module.padding_idx - 1 if module.padding_idx is not None else positions
    return positions


def first_of(*values: Any) -> int:
    """The first that is a number; of several ids the first."""
    for value in values:
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, int):
            return value
    raise ConfigError("the configuration names no such token id")


def ids_of(config: Any) -> set[int]:
    """All control ids that a configuration names."""
    return {value for value in control_ids(config).values() if isinstance(value, int)}


def control_ids(config: Any) -> dict[str, Any]:
    """The control ids by name: a number, several, or none; not every kind of configuration has every name."""
    names = ("pad", "bos", "eos", "sep", "decoder_start")
    return {name: getattr(config, f"{name}_token_id", None) for name in names}


def spare_id(config: Any, vocabulary: int) -> int:
    """The padding id; where there is none, or it is the end token, an id that means nothing else."""
    ids = control_ids(config)
    if isinstance(ids["pad"], int) and ids["pad"] != first_of(ids["eos"], -1):
        return ids["pad"]
    return max(set(range(vocabulary)) - ids_of(config))


def call_encoder_decoder(pad: int) -> Any:
    """Source and decoder input, with the mask that a tokenizer would give."""

    def call(model: Any, source: Tensor, ids: Tensor) -> Tensor:
        return model(
            input_ids=source, attention_mask=(source != pad).long(), decoder_input_ids=ids, use_cache=False
        ).logits

    return call


def call_encoder(pad: int) -> Any:
    """Ids, with the mask that a tokenizer would give."""

    def call(model: Any, ids: Tensor) -> Tensor:
        return model(input_ids=ids, attention_mask=(ids != pad).long()).logits

    return call


def call_decoder(pad: int) -> Any:
    """Ids, with mask and positions of the real tokens: what `generate` does for padded prompts."""

    def call(model: Any, ids: Tensor) -> Tensor:
        mask = (ids != pad).long()
        positions = (mask.cumsum(-1) - 1).clamp_min(0)
        return model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits

    return call


def loss_of_decoder(pad: int) -> Any:
    """The library's own loss, which shifts the labels itself; padding is marked by -100."""

    def loss(model: Any, ids: Tensor, _: Tensor) -> Tensor:
        mask = (ids != pad).long()
        return model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(ids == pad, -100)).loss

    return loss


def loss_of_encoder_decoder(pad: int) -> Any:
    """The library's own loss, which makes the decoder's input of the labels: the start token, and all but the last."""

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        labels = target[:, 1:].masked_fill(target[:, 1:] == pad, -100)
        return model(input_ids=source, attention_mask=(source != pad).long(), labels=labels).loss

    return loss


def cached_decoder(model: Any, ids: Tensor, _: Tensor) -> Tensor:
    """Token by token."""
    past = cache_argument(model, transformers_library().DynamicCache())
    parts = [model(input_ids=ids[:, t : t + 1], use_cache=True, **past).logits for t in range(ids.size(1))]
    return torch.cat(parts, 1)


def cache_argument(model: Any, cache: Any) -> dict[str, Any]:
    """The cache, which grows in place, under the name that this version of the library gives it."""
    names = inspect.signature(model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": cache}


def cached_encoder_decoder(pad: int) -> Any:
    """Token by token, the source encoded once."""

    def cached(model: Any, source: Tensor, ids: Tensor) -> Tensor:
        mask = (source != pad).long()
        memory, library = model.get_encoder()(input_ids=source, attention_mask=mask), transformers_library()
        past = cache_argument(model, library.EncoderDecoderCache(library.DynamicCache(), library.DynamicCache()))
        given = {"encoder_outputs": memory, "attention_mask": mask, "use_cache": True, **past}
        return torch.cat([model(decoder_input_ids=ids[:, t : t + 1], **given).logits for t in range(ids.size(1))], 1)

    return cached


def generate(pad: int, start: int, eos: int) -> Any:
    """The library's own decoding."""

    def decode(model: Any, source: Tensor, beams: int) -> list[list[int]]:
        found = model.generate(
            input_ids=source, attention_mask=(source != pad).long(), num_beams=beams, do_sample=False,
            max_new_tokens=2 * source.size(1), pad_token_id=pad, eos_token_id=eos, decoder_start_token_id=start,
        )  # fmt: skip
        return [[token for token in row if token not in (pad, start, eos)] for row in found.tolist()]

    return decode


def tokenizer_side(path: Path) -> dict[str, TextSide]:
    """The folder's tokenizer, if there is one that can be read."""
    if not any(
        (path / name).exists() for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "vocab.txt")
    ):
        return {}
    try:
        tokenizer = transformers_library().AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    except Exception:
        return {}
    return {
        "tokenizer": TextSide(
            encode=lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"]),
            decode=lambda ids: str(tokenizer.decode(ids)),
            control=frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id},
            unknown=tokenizer.unk_token_id,
        )
    }
