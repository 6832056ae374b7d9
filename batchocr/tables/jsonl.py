"""The table as JSON Lines: UTF-8, one row per line, and nothing else in the file.

A line of metadata would give readers a row that is not a page, so the metadata is in `<name>.meta.json` next to it,
with the SHA-256 of the table: the two belong together, and neither has changed, if it is the same.
"""

from __future__ import annotations

import hashlib
import os
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path

import pyarrow as pa
from pydantic_core import from_json as parse

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.storage.checksums import checked_line, is_sound
from batchocr.tables.atomic import atomic_file, reading, sync, writing
from batchocr.tables.files import metadata_path
from batchocr.tables.schema import (
    MAX_METADATA_BYTES,
    SCHEMA_VERSION,
    RunMetadata,
    from_json,
    metadata_from_json,
    metadata_to_json,
    to_json,
)
from batchocr.tables.settled import SETTLED_SCHEMA, Kept, Row, SettledColumns, possible, read

_ROW_START = re.compile(rb'\{"source":"(?:[^"\\]|\\.)*","page_index":(?:null|\d+),"status":"')
_START_BYTES = 1 << 16
_SIZE = re.compile(rb',"bytes":(\d+),"sha256":')
_DIGEST = re.compile(rb',"sha256":"([0-9a-f]{64})"')
_LOOKED_AT_ONCE = 256
_CHUNK_BYTES = 1 << 20


def write(
    path: Path,
    rows: Iterable[Row],
    metadata: RunMetadata,
    *,
    earlier: JsonLinesTable | None = None,
    written: Callable[[str], None] = lambda digest: None,
) -> None:
    """Write the rows, in order, atomically; only one row at a time is in memory. Raises OutputError.

    earlier: the table of which rows are kept.

    written: called with the digest just before the table takes its place. Between the former table and this one there
    is a moment without metadata, and none with that of the other.
    """
    digest = hashlib.sha256()
    with atomic_file(path) as file:
        for row in rows:
            if not isinstance(row, Kept):
                lines: Iterable[bytes] = [to_json(read(row)) + b"\n"]
            else:
                assert earlier is not None
                lines = earlier.kept(row)
            for line in lines:
                digest.update(line)
                file.write(line)
        num_bytes = file.tell()
        file.flush()
        sync(file.fileno())  # a table that cannot be stored leaves the former one its metadata
        written(digest.hexdigest())
        with writing(metadata_path(path)):
            metadata_path(path).unlink(missing_ok=True)
    _write_metadata(path, metadata, num_bytes, digest.hexdigest())


def _write_metadata(path: Path, metadata: RunMetadata, num_bytes: int, digest: str) -> None:
    with atomic_file(metadata_path(path)) as file:
        keys = b',"bytes":%d,"sha256":"%s"}' % (num_bytes, digest.encode())
        file.write(checked_line(metadata_to_json(metadata)[:-1] + keys))


def restore_metadata(path: Path, metadata: RunMetadata, digests: Collection[str]) -> None:
    """Write what a run that was killed has left to be written beside a table that has one of these digests. Nothing
    happens to any other file, or if there are metadata. Raises OutputError."""
    if metadata_path(path).exists() or not path.exists():
        return
    with reading(path), open(path, "rb") as lines:
        if (digest := hashlib.file_digest(lines, "sha256").hexdigest()) in digests:
            # A run of this version may have put rows into a table that one of the version before had begun.
            _write_metadata(path, replace(metadata, schema_version=SCHEMA_VERSION), lines.tell(), digest)


def open_table(path: Path) -> JsonLinesTable | None:
    """A table of ours; None if it is none. Raises OutputError if its metadata are damaged, or are of another table."""
    if (metadata := read_metadata(path)) is None:
        return None
    return JsonLinesTable(path, metadata)


class JsonLinesTable:
    """A table of ours, open. Its methods raise OutputError."""

    def __init__(self, path: Path, metadata: RunMetadata) -> None:
        self.metadata = metadata
        self._path = path
        with reading(path):
            self._file = path.open("rb")
        self._offsets = array("q", [0])
        """Of the lines, and of the end."""
        said = _DIGEST.search(_metadata_line(path))
        self.digest = said[1].decode() if said else ""
        """By which a run knows the table again."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @cached_property
    def columns(self) -> SettledColumns:
        """The rows without their text. To be asked for first: it compares the digest of the whole."""
        with reading(self._path):
            self._file.seek(0)
            _require_same_table(self._path, hashlib.file_digest(self._file, "sha256").hexdigest())
            self._file.seek(0)
            return SettledColumns(self._looked_at(), self._settled)

    def _looked_at(self) -> Iterator[pa.Table]:
        while lines := list(islice(self._file, _LOOKED_AT_ONCE)):
            self._offsets.extend(accumulate(map(len, lines[1:]), initial=self._offsets[-1] + len(lines[0])))
            yield possible(pa.Table.from_pylist([parse(line) for line in lines], schema=SETTLED_SCHEMA))

    def _settled(self, start: int, stop: int) -> pa.Table:
        return pa.Table.from_pylist([parse(self._line(row)) for row in range(start, stop)], schema=SETTLED_SCHEMA)

    def rows(self, start: int, stop: int) -> Iterator[PageResult]:
        """Yield these rows, in order."""
        with reading(self._path):
            yield from (from_json(self._line(row)) for row in range(start, stop))

    def kept(self, rows: Kept) -> Iterator[bytes]:
        """Yield the lines of these rows, in pieces."""
        return self._pieces(self._offsets[rows.start], self._offsets[rows.stop])

    def _line(self, row: int) -> bytes:
        return b"".join(self._pieces(self._offsets[row], self._offsets[row + 1]))

    def _pieces(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield what is between these bytes of the file."""
        for begin in range(start, stop, _CHUNK_BYTES):
            with reading(self._path):
                piece = os.pread(self._file.fileno(), min(_CHUNK_BYTES, stop - begin), begin)
            yield piece


def read_metadata(path: Path) -> RunMetadata | None:
    """The metadata of the run that wrote the file; None if it is not a table of ours. Raises OutputError if they are
    damaged. Whether they belong to this table is known when its rows are read."""
    line = _metadata_line(path)
    metadata = metadata_from_json(line)
    if metadata is not None and not is_sound(line):
        raise OutputError(
            f"{metadata_path(path)} is damaged, or was changed: restore it with its table, or read the "
            "documents again with `batchocr run --overwrite`"
        )
    return metadata


def could_be_table(path: Path) -> bool:
    """Whether it has metadata, or lost them and begins with a row, as no other file in JSON Lines does. Raises
    OutputError if it cannot be read."""
    if metadata_path(path).exists() or not path.is_file():
        return True
    with reading(path), open(path, "rb") as file:
        return _ROW_START.match(file.read(_START_BYTES)) is not None


def read_rows(path: Path) -> Iterator[PageResult]:
    """Yield the rows of a table of ours, in order. Raises OutputError if it cannot be read, and, before the first row,
    if it is not as it was written."""
    with reading(path), open(path, "rb") as lines:
        _require_same_table(path, hashlib.file_digest(lines, "sha256").hexdigest())
        lines.seek(0)
        yield from map(from_json, lines)


def _require_same_table(path: Path, digest: str) -> None:
    """Raise OutputError if the metadata beside a table is not that of the one with this digest."""
    of_table = _metadata_line(path)
    if not is_sound(of_table) or b'"sha256":"%s"' % digest.encode() not in of_table:
        raise OutputError(
            f"{path} is not the table that {metadata_path(path)} was written for: one of them was damaged, changed or "
            "replaced since; restore both, or read the documents again with `batchocr run --overwrite`"
        )


def is_derived(path: Path) -> bool:
    """Whether another program wrote the table: the metadata beside it are of a file of another size."""
    said = _SIZE.search(_metadata_line(path))
    return said is not None and int(said[1]) != path.stat().st_size


def _metadata_line(path: Path) -> bytes:
    """What the metadata beside a table say; nothing if there are none."""
    metadata = metadata_path(path)
    if not metadata.is_file():
        return b""
    with reading(metadata), metadata.open("rb") as file:
        return file.readline(MAX_METADATA_BYTES)
