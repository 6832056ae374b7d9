"""The table as Parquet: zstd, row groups of 256 pages, the run's metadata in the file's metadata.

Pages have checksums, for every reader. They do not cover what says where the pages are and what they mean, so the
metadata also holds the file's size and a SHA-256 of the whole file, itself left out. They are compared before anything
is taken from the file: no damage reaches the Parquet library. Another size means that another program wrote the file
and kept our metadata.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.tables.atomic import atomic_file, reading
from batchocr.tables.files import how_to_restore
from batchocr.tables.schema import PAGE_SCHEMA, RunMetadata, decode_metadata, encode_metadata, from_row, to_row

ROW_GROUP_PAGES = 256

_ROWS_AT_ONCE = 4
"""Rows made into Python objects at a time. Whole row groups, in each of 40 parts that were merged, took 250 MB more and
no less time."""

_DIGEST_KEY = "batchocr.sha256"
_NO_DIGEST = b"0" * 64
_BEFORE_DIGEST = _DIGEST_KEY.encode() + b"\x18\x40"
"""What stands before the digest in the file: Thrift's compact protocol writes a pair of strings as the key, the type of
the next field, the value's length, the value."""

_SIZE_KEY = "batchocr.bytes"
_NO_SIZE = b"0" * 20
_BEFORE_SIZE = _SIZE_KEY.encode() + b"\x18\x14"

_MAX_TAIL_BYTES = 1 << 20
"""Behind the digest come only some names and types; before it, what says where the pages are can be hundreds of MB."""

_CHUNK_BYTES = 1 << 20

_SOUND: set[tuple[int, int, int, int]] = set()
"""Files whose digest this process has compared, by device, inode, size and time of change: each is hashed once."""


def write(path: Path, rows: Iterable[PageResult], metadata: RunMetadata) -> None:
    """Write the rows, in order, atomically; only one row group at a time is in memory. Raises OutputError."""
    schema = PAGE_SCHEMA.with_metadata(encode_metadata(metadata))
    remaining = iter(rows)
    with atomic_file(path) as file:
        with pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
            while group := [to_row(result) for result in islice(remaining, ROW_GROUP_PAGES)]:
                writer.write_table(pa.Table.from_pylist(group, schema=schema))
            writer.add_key_value_metadata({_SIZE_KEY: _NO_SIZE.decode(), _DIGEST_KEY: _NO_DIGEST.decode()})
        size, position = _find(file, _BEFORE_SIZE), _find(file, _BEFORE_DIGEST)
        assert size is not None and position is not None
        num_bytes = file.seek(0, os.SEEK_END)
        file.seek(size)
        file.write(b"%020d" % num_bytes)
        digest = _digest_without(file, position)
        file.seek(position)
        file.write(digest)


def read_metadata(path: Path) -> RunMetadata | None:
    """The metadata of the run that wrote the file; None if it is not a table of ours. Raises OutputError if it is, and
    is damaged."""
    with reading(path), open(path, "rb") as file:
        if not _has_sound_digest(path, file):
            return None
        return decode_metadata(pq.read_schema(file).metadata)


def read_rows(path: Path) -> Iterator[PageResult]:
    """Yield the rows of a table of ours, in order. Raises OutputError if it cannot be read or is damaged."""
    with reading(path), open(path, "rb") as file:
        if not _has_sound_digest(path, file):
            raise OutputError(f"{path} was not written by this version of batchocr, or is damaged")
        try:
            with pq.ParquetFile(file, page_checksum_verification=True) as table:
                # pyarrow's own `iter_batches` took 1.7 MB more for each file that is open.
                for index in range(table.num_row_groups):
                    for batch in table.read_row_group(index).to_batches(max_chunksize=_ROWS_AT_ONCE):
                        yield from [from_row(row) for row in batch.to_pylist()]
        except (pa.ArrowException, OSError, ValueError) as error:
            raise OutputError(f"cannot read {path}: {error}; it is damaged: {how_to_restore(path)}") from error


def _has_sound_digest(path: Path, file: BinaryIO) -> bool:
    """Whether the file has a digest, as every table of ours. Raises OutputError if that is the digest of another."""
    at = os.fstat(file.fileno())
    version = at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns
    if version in _SOUND:
        return True
    position = _find(file, _BEFORE_DIGEST)
    if position is None:
        return False
    file.seek(position)
    found = file.read(len(_NO_DIGEST))
    if found != _digest_without(file, position):
        if _is_derived(file):
            return False
        raise OutputError(f"{path} was damaged or changed since it was written: {how_to_restore(path)}")
    _SOUND.add(version)
    return True


def _is_derived(file: BinaryIO) -> bool:
    """Whether another program wrote the file, with the metadata of a table of ours: damage does not change the size."""
    position = _find(file, _BEFORE_SIZE)
    if position is None:
        return False
    file.seek(position)
    said = file.read(len(_NO_SIZE))
    return said.isdigit() and int(said) != file.seek(0, os.SEEK_END)


def _find(file: BinaryIO, before: bytes) -> int | None:
    """Where the value behind this is in a table of ours; None if there is none."""
    start = max(0, file.seek(0, os.SEEK_END) - _MAX_TAIL_BYTES)
    file.seek(start)
    position = file.read(_MAX_TAIL_BYTES).rfind(before)
    return None if position < 0 else start + position + len(before)


def _digest_without(file: BinaryIO, position: int) -> bytes:
    """SHA-256 (hex) of the file as it was before its digest was written at `position`."""
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(min(_CHUNK_BYTES, position - file.tell())):
        digest.update(chunk)
    digest.update(_NO_DIGEST)
    file.seek(len(_NO_DIGEST), os.SEEK_CUR)
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest().encode()
