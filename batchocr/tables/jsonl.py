"""The table as JSON Lines: UTF-8, one row per line, and nothing else in the file.

A line of metadata would give readers a row that is not a page, so the metadata is in `<name>.meta.json` next to it,
with the SHA-256 of the table: the two belong together, and neither has changed, if it is the same.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.storage.checksums import checked_line, is_sound
from batchocr.tables.atomic import atomic_file, reading, writing
from batchocr.tables.files import metadata_path
from batchocr.tables.schema import (
    MAX_METADATA_BYTES,
    RunMetadata,
    from_json,
    metadata_from_json,
    metadata_to_json,
    to_json,
)

_ROW_START = re.compile(rb'\{"source":"(?:[^"\\]|\\.)*","page_index":(?:null|\d+),"status":"')
_START_BYTES = 1 << 16
_SIZE = re.compile(rb',"bytes":(\d+),"sha256":')


def write(path: Path, rows: Iterable[PageResult], metadata: RunMetadata) -> None:
    """Write the rows, in order, atomically; only one row at a time is in memory. Raises OutputError.

    Between the former table and this one there is a moment without metadata, and none with that of the other.
    """
    digest = hashlib.sha256()
    with atomic_file(path) as file:
        for result in rows:
            line = to_json(result) + b"\n"
            digest.update(line)
            file.write(line)
        num_bytes = file.tell()
        file.flush()
        os.fsync(file.fileno())  # a table that cannot be stored leaves the former one its metadata
        with writing(metadata_path(path)):
            metadata_path(path).unlink(missing_ok=True)
    with atomic_file(metadata_path(path)) as file:
        keys = b',"bytes":%d,"sha256":"%s"}' % (num_bytes, digest.hexdigest().encode())
        file.write(checked_line(metadata_to_json(metadata)[:-1] + keys))


def read_metadata(path: Path) -> RunMetadata | None:
    """The metadata of the run that wrote the file; None if it is not a table of ours. Raises OutputError if they are
    damaged. Whether they belong to this table is known when its rows are read."""
    line = _metadata_line(path)
    metadata = metadata_from_json(line)
    if metadata is not None and not is_sound(line):
        raise OutputError(
            f"{metadata_path(path)} is damaged, was changed, or is of an earlier version of batchocr: restore it with "
            "its table, or read the documents again with `batchocr run --overwrite`"
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
