"""Parquet files, read with pyarrow, which comes with an extra."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clearhead.errors import DataError
from clearhead.text.lines import Pair, fold_field_breaks, open_bytes

ROWS_AT_A_TIME = 4096


def read_parquet(path: Path, source: str, target: str) -> Iterator[Pair]:
    """Pairs of two columns of text, a few thousand rows at a time.

    A column may lie inside a struct (`translation.en`, as data sets on the Hugging Face hub have it). Null is
    an empty text.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(f'{path}: Parquet files need pyarrow: pip install "clearhead[parquet]"') from error

    line = 0
    with _seekable(path) as stream:
        try:
            file = parquet.ParquetFile(stream)
            _check_columns(path, file.schema_arrow, source, target)
            for batch in file.iter_batches(ROWS_AT_A_TIME, columns=list(dict.fromkeys((source, target)))):
                for row in zip(_texts(batch, source), _texts(batch, target), strict=True):
                    line += 1
                    yield Pair(fold_field_breaks(row[0] or ""), fold_field_breaks(row[1] or ""), line)
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, after row {line}: a text that is not UTF-8: {error}") from error
        except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path}: not a Parquet file, or broken: {error!s:.300}") from error


def _check_columns(path: Path, schema: Any, source: str, target: str) -> None:
    from pyarrow import types

    def is_text(kind: Any) -> bool:
        value = kind.value_type if types.is_dictionary(kind) else kind
        return any(test(value) for test in (types.is_string, types.is_large_string, types.is_string_view))

    for column in (source, target):
        kind: Any = None
        for name in [column] if column in schema.names else column.split("."):
            known = schema.names if kind is None else [field.name for field in kind] if types.is_struct(kind) else []
            if name not in known:
                raise DataError(
                    f"{path}: no column {column!r}, only {', '.join(map(repr, schema.names))}; "
                    "name source_column and target_column"
                )
            kind = schema.field(name).type if kind is None else kind.field(name).type
        if not is_text(kind):
            raise DataError(f"{path}: column {column!r} is of type {kind}, but text is needed")


def _texts(batch: Any, column: str) -> list[str | None]:
    names = [column] if column in batch.schema.names else column.split(".")
    values = batch.column(names[0])
    for name in names[1:]:
        values = values.field(name)
    texts: list[str | None] = values.to_pylist()
    return texts


@contextmanager
def _seekable(path: Path) -> Iterator[Any]:
    """The file as bytes; a packed one is unpacked to the disk first, since Parquet is read from its end."""
    with open_bytes(path) as stream:
        if not path.name.lower().endswith(".gz"):
            yield stream
        else:
            with tempfile.TemporaryFile() as unpacked:
                shutil.copyfileobj(stream, unpacked)
                unpacked.seek(0)
                yield unpacked
