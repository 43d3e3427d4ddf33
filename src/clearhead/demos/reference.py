"""Python's language reference, to go on with: a small GPT learns what such a text is like.

Why this text: it comes with Python (`pydoc_data.topics`, what `help("with")` prints), it is English prose beside
grammar and code, and whoever tries this can judge what a model makes of it.

A document is a section. Many topics hold parts of others, so each paragraph is kept once, where it stands in the
longest topic: no paragraph of the held-out sections is in the training text. The text is that of the Python that runs
this, so figures differ a little from version to version.
"""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from clearhead.demos.files import DemoFiles, demo_files, write_lines
from clearhead.errors import ConfigError

RECIPE = Path(__file__).with_name("reference.toml")
HELD_OUT_SHARE = 0.06
SHORTEST = 300
"""Characters of a document: what is left of a section where paragraphs stand elsewhere may be next to nothing."""
SEED = 1


def sections() -> list[str]:
    """The documents, in the order of the topics' lengths."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise ConfigError("this Python came without pydoc_data, the text of its language reference") from None
    seen: set[str] = set()
    found = []
    for topic in sorted(topics.values(), key=lambda text: (-len(text), text)):
        for section in split_at_headings(topic):
            paragraphs = [part for part in re.split(r"\n\s*\n", section.strip("\n")) if part.strip()]
            new = [part for part in paragraphs if part.strip() not in seen]
            seen.update(part.strip() for part in paragraphs)
            text = "\n\n".join(new)
            if len(text) >= SHORTEST:
                found.append(text)
    return found


def split_at_headings(text: str) -> Iterator[str]:
    """What stands from one underlined line to the next."""
    starts = [found.start() for found in re.finditer(r"^\S.*\n([*=\-~^])\1{3,}$", text, re.MULTILINE)]
    for start, stop in zip([0, *starts], [*starts, len(text)], strict=True):
        if stop > start:
            yield text[start:stop]


def write_data(directory: Path) -> DemoFiles:
    """Writes train.jsonl, valid.jsonl and test.jsonl: a document a line. The same bytes each time."""
    documents = sections()
    random.Random(SEED).shuffle(documents)
    held_out = round(HELD_OUT_SHARE * len(documents))
    files = demo_files(directory, ".jsonl")
    parts = documents[2 * held_out :], documents[:held_out], documents[held_out : 2 * held_out]
    for path, part in zip(files, parts, strict=True):
        write_lines(path, (json.dumps({"text": text}, ensure_ascii=False) for text in part))
    return files


def read_texts(path: Path) -> list[str]:
    """The documents of a file that `write_data` wrote."""
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
