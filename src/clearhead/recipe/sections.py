"""The sections of a recipe, in the order of the file: a class each, their fields are the keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Metric = Literal["loss", "bleu", "chrf2", "exact_match", "wer", "per", "masked_accuracy"]
LOWER_IS_BETTER = frozenset({"loss", "wer", "per"})
DEFAULT_UPDATES = 20_000


class Section(BaseModel):
    """A table of the recipe: unknown keys are refused, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RunSection(Section):
    """`[run]`: where the run is kept, and its seed."""

    dir: Path | None = None
    """The run folder; by default `runs/` and the recipe's name. Relative to the working directory."""
    seed: int = Field(1, ge=0, lt=2**63)
    """Everything random follows from it: first weights, dropout, the order of the batches, the split."""


Documents = Literal["files", "lines", "blank_lines"]


class CorpusSection(Section):
    """Where pairs are read from: two aligned files, or one file of pairs. Or texts, for a language model."""

    source: Path | None = None
    target: Path | None = None
    """Two aligned text files: line i of one belongs to line i of the other."""
    pairs: Path | None = None
    """One file that holds both sides: .tsv .csv .jsonl .parquet .tmx .po, each plain or .gz."""
    source_column: str | int | None = None
    target_column: str | int | None = None
    """Columns, keys or language codes in a file of pairs; by default what its format is used to."""
    format: Literal["tsv", "csv", "jsonl", "parquet", "tmx", "po"] | None = None
    """The format of `pairs`, if its suffix doesn't say."""
    text: str | None = None
    """For a model with one side: a text file, or a pattern of several such as `books/**/*.txt`; plain or .gz. Or .jsonl
    or .parquet, each row a document."""
    documents: Documents | None = None
    """What a document of `text` is: a whole file (`files`, the default), a line (`lines`), or what blank lines set
    apart (`blank_lines`). Documents don't see each other."""
    text_column: str | None = None
    """The key or column of .jsonl and .parquet that holds the text; by default `text`."""
    weight: float = Field(1.0, gt=0)
    """How many times an epoch goes through this corpus; 0.5 takes another half each time."""

    @model_validator(mode="after")
    def _two_files_or_one(self) -> CorpusSection:
        if (self.source is None) != (self.target is None):
            raise ValueError("source and target belong together: two aligned files")
        if sum(given is not None for given in (self.source, self.pairs, self.text)) != 1:
            raise ValueError(
                "give either source and target (two aligned files) or pairs (one file); or text, for a language model"
            )
        if self.text is None and (self.documents or self.text_column):
            raise ValueError("documents and text_column go with text")
        return self


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, Mapping) else value


Corpora = Annotated[tuple[CorpusSection, ...], BeforeValidator(_as_list), Field(min_length=1)]


class DataSection(Section):
    """`[data]`: the pairs, or the texts, to learn from and to validate on."""

    root: Path = Path(".")
    """The folder the files below are in. Relative to the working directory."""
    train: Corpora
    """One corpus, or a list of corpora with weights."""
    valid: Corpora | None = None
    """Pairs to validate on. Without them, and without the two keys below, 5 % of the training pairs are split off: at
    least 1, at most 500. Of texts, 5 % of the documents."""
    valid_split: float | None = Field(None, gt=0, lt=1)
    """The share of the training pairs, or documents, to split off for validation."""
    valid_pairs: int | None = Field(None, ge=1)
    """The number of training pairs to split off for validation."""
    max_length: int = Field(256, ge=2)
    """Pairs with more tokens on a side than this, the end token counted, are left out and reported."""
    block_length: int = Field(256, ge=8)
    """Of texts: documents are written one behind another and cut into blocks of so many tokens."""

    @property
    def is_text(self) -> bool:
        """Whether there are texts to learn from, and no pairs."""
        return self.train[0].text is not None

    @model_validator(mode="after")
    def _all_pairs_or_all_texts(self) -> DataSection:
        kinds = {corpus.text is None for corpus in (*self.train, *(self.valid or ()))}
        if len(kinds) > 1:
            raise ValueError("there are pairs and texts in it; a model learns from the ones or from the others")
        if self.is_text and self.valid_pairs is not None:
            raise ValueError("valid_pairs is for pairs; of texts set valid_split, a share of the documents")
        return self

    @model_validator(mode="after")
    def _one_validation_set(self) -> DataSection:
        given = [key for key in ("valid", "valid_split", "valid_pairs") if getattr(self, key) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are both given; keep one")
        return self


TokenizerKind = Literal["char", "word", "bpe", "byte"]


class TokenizerSide(Section):
    """`[tokenizer.source]` or `[tokenizer.target]`: what differs on that side."""

    kind: TokenizerKind | None = None
    vocab_size: int | None = Field(None, ge=5)
    separator: str | None = Field(None, min_length=1)


class TokenizerSection(Section):
    """`[tokenizer]`: how text becomes tokens. Tokenizers are trained on the training pairs."""

    kind: TokenizerKind = "bpe"
    """`char` characters; `word` symbols between separators; `bpe` byte pairs; `byte` bytes."""
    vocab_size: int | None = Field(None, ge=5)
    """Number of tokens, the four control tokens included; by default 8,000 for `bpe`, all there are for others."""
    shared: bool = False
    """One tokenizer for both sides."""
    separator: str = Field(" ", min_length=1)
    """What stands between the symbols of `word`."""
    source: TokenizerSide | None = None
    target: TokenizerSide | None = None

    def side(self, name: Literal["source", "target"]) -> tuple[TokenizerKind, int | None, str]:
        """Kind, vocabulary size and separator of one side."""
        own: TokenizerSide = getattr(self, name) or TokenizerSide()
        kind = own.kind or self.kind
        size = own.vocab_size or self.vocab_size or (8_000 if kind == "bpe" else None)
        return kind, size, own.separator or self.separator

    @model_validator(mode="after")
    def _shared_means_equal(self) -> TokenizerSection:
        if self.shared and self.side("source") != self.side("target"):
            raise ValueError("shared = true, but [tokenizer.source] and [tokenizer.target] differ")
        return self


class TrainingSection(Section):
    """`[training]`: the loop. The first limit reached ends the run: `updates`, `epochs`, `max_minutes`, `patience`."""

    batch_tokens: int = Field(4096, ge=2)
    """Size of a batch: tokens of its larger side, padding included; of texts, as many blocks as fit into it."""
    accumulate: int = Field(1, ge=1)
    """Batches whose gradients make one update; equal to one batch of their size."""
    updates: int | None = Field(None, ge=1)
    """Number of updates; 20,000 if no limit is given at all. Skipped updates don't count."""
    epochs: float | None = Field(None, gt=0)
    """Times through the data; turned into updates by the first epoch's number of batches."""
    max_minutes: float | None = Field(None, gt=0)
    """Time limit, of all resumed parts together."""
    optimizer: Literal["adam", "adamw"] = "adam"
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.98)
    epsilon: float = Field(1e-9, gt=0)
    """Beta 1, beta 2 and epsilon of Adam, by default the paper's (section 5.3)."""
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["inverse_sqrt", "cosine", "constant", "paper"] = "inverse_sqrt"
    """`paper` has its own peak, `d_model**-0.5 * warmup**-0.5` (section 5.3); the others reach `peak_rate`."""
    peak_rate: float = Field(1e-3, gt=0)
    """The learning rate at the end of the warm-up."""
    floor_rate: float = Field(0.0, ge=0)
    """Where `cosine` ends."""
    warmup: int = Field(1000, ge=0)
    """Updates over which the rate rises from near 0."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of the probability taken from the right token and spread over the others (section 5.4). Of texts always
    0: a language model is to give probabilities as they are."""
    clip_norm: float = Field(1.0, ge=0)
    """Gradients with a larger norm are scaled down to it; 0 for never."""
    max_skipped: int = Field(20, ge=1)
    """Updates with infinite gradients are skipped; this many in a row end the run."""
    validate_every: int = Field(500, ge=1)
    """Updates between two validations."""
    save_every: int | None = Field(None, ge=1)
    """Updates between two checkpoints; by default as `validate_every`."""
    keep: int = Field(2, ge=1)
    """Checkpoints kept."""
    average: int = Field(5, ge=0)
    """Weights of the last so many validations are averaged at the end, and used if better than the best; 0 for none."""
    patience: int | None = Field(None, ge=1)
    """Validations without a better metric after which the run ends; a tie is not better."""
    metric: Metric = "loss"
    """What the best model is best in, on the validation pairs. All but `loss` are measured by greedy decoding. A model
    with one side has `loss`, or, if it is an encoder, `masked_accuracy`: the percentage of masked tokens found."""
    decoded_pairs: int = Field(500, ge=1)
    """Decode at most so many validation pairs; the loss is always that of all of them."""
    samples: int = Field(3, ge=0)
    """Validation outputs shown."""
    device: str = "auto"
    """`auto`: the GPU if there is one; `cpu`, `cuda`, `cuda:1`."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """`bfloat16`: matrix products in it, weights and updates in float32."""
    compile: bool = False
    """Compile the model; takes minutes at the start, and needs a C++ compiler on the CPU."""
    threads: int | None = Field(None, ge=1)
    """Threads on the CPU; by default as many as cores."""
    log_every: int = Field(50, ge=1)
    """Updates between two lines of `metrics.jsonl` and of the progress display."""
    tensorboard: bool = False
    """Also log for TensorBoard, in the run folder (needs `pip install "clearhead[log]"`)."""

    def total_updates(self, batches_per_epoch: int) -> int | None:
        """How many updates the run has, or `None` if only its time is limited."""
        limits = [] if self.updates is None else [self.updates]
        if self.epochs is not None:
            limits.append(max(1, round(self.epochs * batches_per_epoch / self.accumulate)))
        if limits:
            return min(limits)
        return None if self.max_minutes is not None else DEFAULT_UPDATES

    @model_validator(mode="after")
    def _cosine_needs_an_end(self) -> TrainingSection:
        if self.schedule == "cosine" and self.total_updates(1) is None:
            raise ValueError('schedule = "cosine" has to know where it ends: set updates or epochs')
        return self


class DiagnosticsSection(Section):
    """`[diagnostics]`: looking inside the model while it trains. It changes nothing of the training."""

    every: int | None = Field(None, ge=1)
    """Updates between two measurements of gradients, activations, updates and heads by layer. By
    default none are made."""


class DecodingSection(Section):
    """`[decoding]`: what `translate` and `evaluate` use unless told otherwise."""

    beam_size: int = Field(5, ge=1)
    length_penalty: float = Field(0.6, ge=0, le=10)
    max_length_ratio: float = Field(3.0, ge=0, le=1000)
    max_length_extra: int = Field(50, ge=0)
    """An output has at most `max_length_ratio * source tokens + max_length_extra` tokens."""
