"""The table as Parquet: zstd, row groups of 256 pages, the run's facts in the file's metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.output.atomic import atomic_file, reading
from batchocr.output.schema import PAGE_SCHEMA, RunFacts, decode_facts, encode_facts, from_row, to_row

ROW_GROUP_PAGES = 256


def write(path: Path, rows: Iterable[PageResult], facts: RunFacts) -> None:
    """Write the rows, in order, atomically; only one row group at a time is in memory. Raises OutputError."""
    schema = PAGE_SCHEMA.with_metadata(encode_facts(facts))
    remaining = iter(rows)
    with atomic_file(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := [to_row(result) for result in islice(remaining, ROW_GROUP_PAGES)]:
            writer.write_table(pa.Table.from_pylist(group, schema=schema))


def read_facts(path: Path) -> RunFacts | None:
    """The facts of the run that wrote the file; None if it is not a table of ours. Raises OutputError."""
    with reading(path), open(path, "rb") as file:
        try:
            metadata = pq.read_schema(file).metadata or {}
        except (pa.ArrowException, OSError):
            return None
    return decode_facts({_text(key): _text(value) for key, value in metadata.items()})


def read_rows(path: Path) -> Iterator[PageResult]:
    """Yield the rows of a table of ours, in order. Raises OutputError if it cannot be read or is damaged."""
    with reading(path), open(path, "rb") as file:
        try:
            with pq.ParquetFile(file) as table:
                for batch in table.iter_batches(batch_size=ROW_GROUP_PAGES):
                    yield from map(from_row, batch.to_pylist())
        except (pa.ArrowException, OSError, ValueError) as error:
            raise OutputError(f"cannot read {path}: {error}; it is damaged, start over with --overwrite") from error


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
