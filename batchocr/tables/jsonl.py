"""The table as JSON Lines: UTF-8, one row per line, and nothing else in the file.

A line of metadata would give readers a row that is not a page, so its record is in `<name>.meta.json` next to it, with
the SHA-256 of the table: the two belong together, and neither has changed, if it is the same.
"""

from __future__ import annotations

import hashlib
import os
import re
from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyarrow.json import ParseOptions, ReadOptions, read_json
from pydantic_core import from_json as parse

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.tables.atomic import reading
from batchocr.tables.files import record_path
from batchocr.tables.known import KNOWN_SCHEMA, Kept, KnownRows, Row, possible, read
from batchocr.tables.layout import layout_of, open_recorded, read_record
from batchocr.tables.parquet import Earlier
from batchocr.tables.record import Record
from batchocr.tables.schema import PAGE_SCHEMA, RunMetadata, from_json, to_json

_ROW_START = re.compile(rb'\{"source":"(?:[^"\\]|\\.)*","page_index":(?:null|\d+),"status":"')
_START_BYTES = 1 << 16
_LOOKED_AT_ONCE = 256
_CHUNK_BYTES = 1 << 20


def write_into(file: BinaryIO, rows: Iterable[Row], earlier: Earlier | None = None) -> str:
    """Write the rows, in order, into an empty file; only one row at a time is in memory. Returns the digest. earlier:
    the table of which rows are kept."""
    digest = hashlib.sha256()
    for row in rows:
        if not isinstance(row, Kept):
            lines: Iterable[bytes] = [to_json(read(row)) + b"\n"]
        else:
            assert earlier is not None
            lines = earlier.kept(row)
        for line in lines:
            digest.update(line)
            file.write(line)
    return digest.hexdigest()


def open_table(path: Path) -> JsonLinesTable | None:
    """The table at `path`, open; None if it is no table of ours. Raises OutputError if it is not the one that its
    record names, by its size; whether by its content is known when rows are read."""

    def opened(record: Record) -> JsonLinesTable:
        for place in _found(path, record):
            try:
                return JsonLinesTable(place, record, is_staged=place != path)
            except OutputError:
                if place.exists():  # else it has just taken its name
                    raise
        raise OutputError(_why_another(path))

    return open_recorded(path, opened)


class JsonLinesTable:
    """A table of ours, open. Its methods raise OutputError."""

    def __init__(self, path: Path, record: Record, *, is_staged: bool) -> None:
        """is_staged: whether the table has not taken its name."""
        self.metadata = record.metadata
        self.displaced = [*record.commit.parts] if is_staged else []
        """The name of the table's file, if it has not taken that yet."""
        self._path = path
        with reading(path):
            self._file = path.open("rb")
        self.digest = record.digest
        """The digest of the table, by which a run knows it again."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @cached_property
    def columns(self) -> KnownRows:
        """The rows without their text."""
        return KnownRows(self.looked_at())

    @cached_property
    def _offsets(self) -> array[int]:
        """Where each line begins, and where the last one ends, in bytes."""
        with reading(self._path):
            self._file.seek(0)
            return array("q", accumulate(map(len, self._file), initial=0))

    def looked_at(self) -> Iterator[pa.Table]:
        """Yield all rows, with the columns that are looked at; they are compared with the digest first."""
        with reading(self._path):
            self._require_digest()
            while lines := list(islice(self._file, _LOOKED_AT_ONCE)):
                yield possible(pa.Table.from_pylist([parse(line) for line in lines], schema=KNOWN_SCHEMA))

    def all_rows(self) -> Iterator[PageResult]:
        """Yield all rows, in order; they are compared with the digest first."""
        with reading(self._path):
            self._require_digest()
            yield from map(from_json, self._file)

    def rows(self, start: int, stop: int) -> Iterator[PageResult]:
        """Yield these rows, in order."""
        with reading(self._path):
            yield from map(from_json, b"".join(self.kept(Kept(start, stop))).splitlines())

    def kept(self, rows: Kept) -> Iterator[bytes]:
        """Yield the lines of these rows, in pieces."""
        start, stop = self._offsets[rows.start], self._offsets[rows.stop]
        for begin in range(start, stop, _CHUNK_BYTES):
            with reading(self._path):
                piece = os.pread(self._file.fileno(), min(_CHUNK_BYTES, stop - begin), begin)
            yield piece

    def _require_digest(self) -> None:
        """Raise OutputError if the file is not the table that its record names; else its first row is the next to be
        read."""
        self._file.seek(0)
        if hashlib.file_digest(self._file, "sha256").hexdigest() != self.digest:
            raise OutputError(_why_another(self._path))
        self._file.seek(0)

    def arrow(self, rows: Kept) -> pa.Table:
        """These rows, with the columns of this version."""
        lines = pa.BufferReader(b"".join(self.kept(rows)))
        with reading(self._path):
            return read_json(lines, ReadOptions(block_size=lines.size()), ParseOptions(PAGE_SCHEMA)).cast(PAGE_SCHEMA)


def read_metadata(path: Path) -> RunMetadata | None:
    """The metadata of the run that wrote the file; None if it is not a table of ours. Raises OutputError if they are
    damaged. Whether they belong to this table is known when it is opened."""
    record = read_record(path)
    return record.metadata if record else None


def could_be_table(path: Path) -> bool:
    """Whether a file has metadata, or lost them and begins with a row, as no other file in JSON Lines does. Raises
    OutputError if it cannot be read."""
    if record_path(path).exists() or not path.is_file():
        return True
    with reading(path), open(path, "rb") as file:
        return _ROW_START.match(file.read(_START_BYTES)) is not None


def read_rows(path: Path) -> Iterator[PageResult]:
    """Yield the rows of a table of ours, in order. Raises OutputError if it cannot be read, and, before the first row,
    if it is not as it was written."""
    if (table := open_table(path)) is None:
        raise OutputError(
            f"{path} has no {record_path(path).name} beside it, which says that it is whole: put that back"
        )
    with closing(table):
        yield from table.all_rows()


def has_table(path: Path) -> bool:
    """Whether there is a table, of whatever state, or one that has not taken its name yet."""
    with suppress(OutputError):
        if path.exists() or ((record := read_record(path)) is not None and any(_found(path, record))):
            return True
    return False


def is_derived(path: Path) -> bool:
    """Whether another program wrote the table: the record beside it, which nobody replaces meanwhile, is of a file of
    another size."""
    record = read_record(path)
    return record is not None and not any(_found(path, record)) and read_record(path) == record


def _found(path: Path, record: Record) -> Iterator[Path]:
    """Where the file is that a record names: what is staged is that file, whatever has its name."""
    folder, layout = layout_of(path)
    for name, part in record.commit.parts.items():
        for place in layout.places(name, record.commit)[-2:]:
            with suppress(FileNotFoundError):
                if (folder / place).is_file() and (folder / place).stat().st_size == part.bytes:
                    yield folder / place


def _why_another(path: Path) -> str:
    return (
        f"{path} is not the table that {record_path(path)} was written for: one of them was damaged, changed or "
        "replaced since; restore both, or read the documents again with `batchocr run --overwrite`"
    )
