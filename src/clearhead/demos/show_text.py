"""What a demo prints of a language model: how its loss fell, what it is on held-out text, how it goes on with some."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clearhead.decoding.loading import load_generator
from clearhead.demos.reference import read_texts
from clearhead.models.making import map_model
from clearhead.run_folder import RunFolder
from clearhead.text.document_corpus import DocumentCorpus
from clearhead.text.documents import TextFiles
from clearhead.training.next_token import NextToken
from clearhead.training.objectives import make_objective

SHOWN = 3
PROMPT_CHARACTERS = 60


def show_language_model(folder: RunFolder, test: Path, console: Console) -> None:
    """The validations, the test, and some continuations."""
    table = Table(title="Validations, on documents that are not trained on", title_justify="left")
    for heading in ("update", "loss", "perplexity"):
        table.add_column(heading, justify="right")
    for record in folder.read_metrics():
        if record["event"] == "validation":
            table.add_row(f"{record['update']:,}", f"{record['loss']:.3f}", f"{record['perplexity']:.1f}")
    console.print(table)

    generator, texts = load_generator(folder.path), read_texts(test)
    loss, bits = measure(folder, test, sum(map(len, texts)))
    console.print(
        f"\n[bold]Result:[/] on {len(texts)} documents that it has never seen the model has a loss of "
        f"[bold green]{loss:.3f}[/] nats a token, a perplexity of [bold green]{math.exp(loss):.1f}[/] "
        f"({bits:.2f} bits a character): at each token it is as unsure as if so many were equally likely. A model that "
        f"knows nothing has {generator.model.config.target_vocab:,}.",
        soft_wrap=True,
    )
    console.print("\n[bold]How it goes on[/] with the beginnings of some of them (drawn at temperature 0.7, seed 1):")
    prompts = [text[: text.rfind(" ", 0, PROMPT_CHARACTERS)] for text in texts[:SHOWN]]
    options: dict[str, Any] = {"sample": True, "temperature": 0.7, "top_p": 0.95, "max_new_tokens": 60, "seed": 1}
    for prompt, continuation in zip(prompts, generator.generate(prompts, **options), strict=True):
        console.print(f"\n[dim]{escape(prompt)}[/][bold]{escape(continuation)}[/]", soft_wrap=True)


@torch.no_grad()
def measure(folder: RunFolder, test: Path, characters: int) -> tuple[float, float]:
    """The loss on a file of documents, in blocks as in validation: nats a token, and bits a character."""
    recipe, cpu = folder.read_recipe(), torch.device("cpu")
    objective = make_objective(recipe, folder, cpu, lambda text: None)
    assert isinstance(objective, NextToken)
    corpus = DocumentCorpus.build(folder.data / "test", [TextFiles((test,))], objective.data.tokenizer)
    loss = objective.measure(map_model(objective.config, folder.model).eval(), corpus).loss
    predicted = len(corpus.ids) - len(corpus)  # all but the documents' first
    return loss, loss * predicted / math.log(2) / characters
