"""The table as Parquet: zstd, row groups of 1024 pages, the run's metadata in the file's metadata.

Pages have checksums, for every reader. They do not cover the footer, which says where the pages are and what they mean,
so the metadata also holds the file's size, a SHA-256 of the footer, and one of the whole file, each of them itself left
out. Size and footer are compared before anything is taken from the file, and the whole before rows are read or copied.
What a run reads before, to see what has changed, are pages with checksums. Another size means that another program
wrote the file and kept our metadata.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from io import FileIO
from itertools import accumulate, groupby, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from batchocr.data import PageResult
from batchocr.errors import OutputError
from batchocr.tables.atomic import atomic_file, reading
from batchocr.tables.files import how_to_restore
from batchocr.tables.known import LEAVES, Kept, KnownRows, Row, possible, read
from batchocr.tables.schema import PAGE_SCHEMA, RunMetadata, decode_metadata, encode_metadata, from_row, to_row

ROW_GROUP_PAGES = 1024
"""The rows of a row group. With 256, a million rows took 130 MB more to open, and as much again to write, for what a
file says of its pages."""

_ROWS_AT_ONCE = 4
"""How many rows are made into Python objects at a time. Whole row groups, in each of 40 parts that were merged, took
250 MB more and no less time."""
_ROWS_MADE_AT_ONCE = 64
"""How many rows are made of Python objects at a time when a row group is written."""
_ROWS_DECODED_AT_ONCE = 256
"""How many rows are made of Parquet at a time, unless a whole row group is copied. With 64, a copy took a third longer;
all of a row group, of each of 40 parts that are merged, would take half a gigabyte."""

_SAID = re.compile(rb"batchocr\.(bytes|footer_sha256|sha256)(?:\x18\x14(.{20})|\x18\x40(.{64}))", re.DOTALL)
"""What a file says of itself. Thrift's compact protocol writes a pair of strings as the key, the type of the next
field, the value's length, the value."""
_NO_DIGEST = b"0" * 64
_NO_SIZE = b"0" * 20
_SOUGHT = ["source", "page_index", "status", "doc_id", "error_kind"]
"""Columns of whose values readers of a row group are told the least and the largest. For all, a row took 16 bytes more
of memory in a merge."""
_FOOTER_END = struct.Struct("<I4x")
"""How long the footer is, which says where the pages are and what they mean, and a magic number."""

_MAX_TAIL_BYTES = 1 << 20
"""The most bytes at the end of a file that are searched for its digest. Behind the digest come only some names and
types; before it, what says where the pages are can be hundreds of MB."""

_CHUNK_BYTES = 1 << 20

_GROUPS_AT_ONCE = 8
"""How many row groups are read at a time when only a few columns are read. One reader of all of a million rows kept 80
MB to the end."""

INCOMPLETE: Final[dict[Path, Callable[[], None]]] = {}
"""What completes a copy that lacks the columns that were not looked at; it may raise OutputError."""

_SOUND: set[tuple[int, int, int, int]] = set()
"""Files whose digest this process has compared, by device, inode, size and time of change: each is hashed once."""


class Documents(Protocol):
    """Where the documents of a table begin."""

    def begin_of_document(self, row: int) -> int: ...


class Earlier(Protocol):
    """A table of which rows are kept."""

    @property
    def columns(self) -> Documents: ...

    def kept(self, rows: Kept) -> Any:
        """These rows, for a table in Parquet as an Arrow table, for one in JSON Lines as the pieces of their lines."""


def write(path: Path, rows: Iterable[Row], metadata: RunMetadata, *, earlier: Earlier | None = None) -> None:
    """Write a file with these rows, whole or not at all. Raises OutputError."""
    with atomic_file(path) as file:
        write_into(file, rows, metadata, earlier)


def write_into(file: BinaryIO, rows: Iterable[Row], metadata: RunMetadata, earlier: Earlier | None = None) -> str:
    """Write the rows, in order, into an empty file; only one row group at a time is in memory. Returns the digest.

    earlier: the table of which rows are kept.
    """
    schema = PAGE_SCHEMA.with_metadata(encode_metadata(metadata))
    options = {"compression": "zstd", "write_page_checksum": True, "write_statistics": _SOUGHT}
    with pq.ParquetWriter(file, schema, **options) as writer:
        for group in _grouped(rows, earlier):
            writer.write_table(_as_arrow(group, earlier))
        digests = dict.fromkeys(("batchocr.footer_sha256", "batchocr.sha256"), _NO_DIGEST.decode())
        writer.add_key_value_metadata({"batchocr.bytes": _NO_SIZE.decode(), **digests})
    places = {key: place for key, (place, _) in _said(file).items()}

    def fill_in(key: str, value: bytes) -> None:
        file.seek(places[key])
        file.write(value)

    fill_in("bytes", b"%020d" % file.seek(0, os.SEEK_END))
    fill_in("footer_sha256", _footer_digest(file))
    digest = _digest_without(file, places["sha256"])
    fill_in("sha256", digest)
    return digest.decode()


def _grouped(rows: Iterable[Row], earlier: Earlier | None) -> Iterator[Sequence[Row]]:
    """Yield what each row group is made of: a group ends where a document ends, unless that has thousands of pages."""
    group: list[Row] = []
    num_rows, source = 0, ""
    for row in rows:
        if not isinstance(row, Kept):
            if num_rows >= (2 if row.source == source else 1) * ROW_GROUP_PAGES:
                yield group
                group, num_rows = [], 0
            group.append(row)
            num_rows, source = num_rows + 1, row.source
            continue
        assert earlier is not None
        while row.start < row.stop:
            if num_rows >= ROW_GROUP_PAGES:
                yield group
                group, num_rows = [], 0
            full = row.start + ROW_GROUP_PAGES - num_rows
            stop = min(row.stop, full + ROW_GROUP_PAGES, earlier.columns.begin_of_document(full))
            if group and isinstance(before := group[-1], Kept) and before.stop == row.start:  # read at once
                group[-1] = before._replace(stop=stop)
            else:
                group.append(row._replace(stop=stop))
            num_rows += stop - row.start
            row = row._replace(start=stop)
    if group:
        yield group


def _as_arrow(group: Iterable[Row], earlier: Earlier | None) -> pa.Table:
    tables: list[pa.Table] = []
    for is_kept, rows in groupby(group, key=lambda row: isinstance(row, Kept)):
        while several := list(islice(rows, _ROWS_MADE_AT_ONCE)):
            if not is_kept:
                made = [to_row(read(row)) for row in several if not isinstance(row, Kept)]
                tables.append(pa.Table.from_pylist(made, schema=PAGE_SCHEMA))
            tables += [earlier.kept(row) for row in several if earlier is not None and isinstance(row, Kept)]
    return pa.concat_tables(tables)


def open_table(path: Path, *, held: int | None = None) -> ParquetTable | None:
    """The table at `path`, open; None if it is no table of ours. held: a descriptor of it, whatever is at `path` now.
    Raises OutputError if it is one and its footer is damaged."""
    with reading(path), ExitStack() as undo:
        opened = path if held is None else f"/proc/self/fd/{held}"
        file = undo.enter_context(open(opened, "rb", buffering=0))  # a copy is completed while it is open
        if not _has_sound_footer(path, file):
            return None
        parquet = _parquet_of(file)
        if (metadata := decode_metadata(parquet.schema_arrow.metadata)) is None:
            return None
        undo.pop_all()
        return ParquetTable(path, file, parquet, metadata)


def _parquet_of(file: FileIO) -> pq.ParquetFile:
    """The Parquet in an open file. The file is opened once more, by Arrow: its threads may hold what it has read
    through Python for longer than Python lives, and abort the process then."""
    return pq.ParquetFile(pa.OSFile(f"/proc/self/fd/{file.fileno()}"), page_checksum_verification=True)


def read_metadata(path: Path) -> RunMetadata | None:
    """The metadata of the run that wrote the file; None if it is not a table of ours. Raises OutputError if it is, and
    its footer is damaged."""
    if (table := open_table(path)) is None:
        return None
    with closing(table):
        return table.metadata


def read_rows(path: Path) -> Iterator[PageResult]:
    """Yield the rows of a table of ours, in order. Raises OutputError if it cannot be read or is damaged."""
    if (table := open_table(path)) is None:
        raise OutputError(f"{path} was not written by this version of batchocr, or is damaged")
    with closing(table):
        yield from table.rows(0, table.num_rows)


class ParquetTable:
    """A table of ours, open. Its methods raise OutputError; those that give rows with their text compare the digest of
    the whole first."""

    def __init__(self, path: Path, file: FileIO, parquet: pq.ParquetFile, metadata: RunMetadata) -> None:
        self.metadata = metadata
        self._path = path
        self._file = file
        self._parquet = parquet
        groups = range(parquet.metadata.num_row_groups)
        self._ends = list(accumulate(parquet.metadata.row_group(index).num_rows for index in groups))
        self._decoded: tuple[int, pa.RecordBatch | None, Iterator[pa.RecordBatch]] = -1, None, iter(())
        """Rows that were decoded last, the number of the first, and those of the row group that come behind them."""

    def close(self) -> None:
        """Close the file, at once, though a thread of Arrow may not have let go of it yet."""
        if "_parquet" in self.__dict__:
            self._parquet.close(force=True)
        self._file.close()

    @property
    def num_rows(self) -> int:
        """How many rows the table has."""
        return self._ends[-1] if self._ends else 0

    @property
    def digest(self) -> str:
        """The digest of the table, by which a run knows it again."""
        return said_digest(self._file)

    def held(self) -> int | None:
        """Another descriptor of the file; None if no more can be opened."""
        try:
            return os.open(f"/proc/self/fd/{self._file.fileno()}", os.O_RDONLY)
        except OSError:
            return None

    @property
    def has_all_columns(self) -> bool:
        """Whether the table has the columns of this version, and no others."""
        return bool(self._parquet.schema_arrow.equals(PAGE_SCHEMA))

    @cached_property
    def columns(self) -> KnownRows:
        """The rows without their text."""
        columns = KnownRows(self.looked_at())
        self._parquet.close(force=True)
        del self._parquet  # its footer takes 28 bytes a row, and a run with nothing new needs it no more
        return columns

    @cached_property
    def _parquet(self) -> pq.ParquetFile:
        return _parquet_of(self._file)

    def looked_at(self) -> Iterator[pa.Table]:
        """Yield all rows, with the columns that are looked at."""
        groups = range(len(self._ends))  # `schema`, which knows the columns, would keep what was read of the footer
        for first in groups[::_GROUPS_AT_ONCE]:
            with self._sound():
                several = possible(self._parquet.read_row_groups(groups[first : first + _GROUPS_AT_ONCE], LEAVES))
            yield several

    def rows(self, start: int, stop: int) -> Iterator[PageResult]:
        """Yield these rows, in order."""
        for batch in self._batches(start, stop):
            for first in range(0, len(batch), _ROWS_AT_ONCE):
                with self._sound():
                    several = [*map(from_row, batch[first : first + _ROWS_AT_ONCE].to_pylist())]
                yield from several

    def kept(self, rows: Kept) -> pa.Table:
        """These rows, with the columns of this version. Quickest if they come behind those that were asked for last."""
        table = pa.Table.from_batches(self._batches(rows.start, rows.stop))
        if table.schema.equals(PAGE_SCHEMA):
            return table
        return pa.Table.from_pylist([*map(to_row, self.rows(*rows))], schema=PAGE_SCHEMA)

    def _batches(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield these rows, some at a time; those of a whole row group together, which is quicker."""
        self._require_digest()
        while start < stop:
            group = bisect_right(self._ends, start)
            begin = self._ends[group - 1] if group else 0
            if start == begin and stop >= self._ends[group]:
                with self._sound():
                    several = self._parquet.read_row_group(group).to_batches()
                yield from several
                start = self._ends[group]
                continue
            first, batch = self._batch_with(start, group, begin)
            yield batch[start - first : stop - first]
            start = first + len(batch)

    def _batch_with(self, row: int, group: int, begin: int) -> tuple[int, pa.RecordBatch]:
        """Rows that were decoded together, this one among them, and the number of the first. Those that come later in a
        row group are not decoded yet: of many tables that are open, they would fill the memory. group, begin: where the
        row is, and which row is the first there."""
        first, batch, rest = self._decoded
        with self._sound():
            if batch is None or not begin <= first <= row:
                rest = self._parquet.iter_batches(_ROWS_DECODED_AT_ONCE, row_groups=[group], use_threads=False)
                first, batch = begin, next(rest)
            while row >= first + len(batch):
                first, batch = first + len(batch), next(rest)
        self._decoded = first, batch, rest
        return first, batch

    def _require_digest(self) -> None:
        with reading(self._path):
            _has_sound_digest(self._path, self._file)

    @contextmanager
    def _sound(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            raise OutputError(
                f"cannot read {self._path}: {error}; it is damaged: {how_to_restore(self._path)}"
            ) from error


def said_digest(file: BinaryIO) -> str:
    """The digest that a file says it has; empty if it says none."""
    return _said(file).get("sha256", (0, b""))[1].decode()


def _has_sound_footer(path: Path, file: BinaryIO) -> bool:
    """Whether the file has the digests of a table of ours; of one without a digest of its footer, all is hashed. Raises
    OutputError if it is not as it was written."""
    said = _said(file)
    _, size = said.get("bytes", (0, b""))
    if size.isdigit() and int(size) != file.seek(0, os.SEEK_END):
        return False  # another program wrote it, with the metadata of a table of ours: damage does not change the size
    if "footer_sha256" not in said:
        return _has_sound_digest(path, file)
    if said["footer_sha256"][1] != _footer_digest(file):
        raise OutputError(f"{path} was damaged or changed since it was written: {how_to_restore(path)}")
    return True


def _has_sound_digest(path: Path, file: BinaryIO) -> bool:
    """Whether the file has a digest, as every table of ours. Raises OutputError if that is the digest of another."""
    if _version(file) in _SOUND:
        return True
    if (said := _said(file).get("sha256")) is None:
        return False
    INCOMPLETE.pop(path, lambda: None)()
    place, digest = said
    if digest != _digest_without(file, place):
        raise OutputError(f"{path} was damaged or changed since it was written: {how_to_restore(path)}")
    _SOUND.add(_version(file))
    return True


def _version(file: BinaryIO) -> tuple[int, int, int, int]:
    """What `_SOUND` knows a file by: device, inode, size and time of change."""
    at = os.fstat(file.fileno())
    return at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns


def _said(file: BinaryIO) -> dict[str, tuple[int, bytes]]:
    """What a table of ours says of itself: where that is in the file, and what it is."""
    start = max(0, file.seek(0, os.SEEK_END) - _MAX_TAIL_BYTES)
    file.seek(start)
    found = [(said, said.lastindex or 0) for said in _SAID.finditer(file.read(_MAX_TAIL_BYTES))]
    return {said[1].decode(): (start + said.start(value), said[value]) for said, value in found}


def _footer_digest(file: BinaryIO) -> bytes:
    """SHA-256 (hex) of what says where the pages are and what they mean, as it was before the digests were written."""
    file.seek(-_FOOTER_END.size, os.SEEK_END)
    (length,) = _FOOTER_END.unpack(file.read(_FOOTER_END.size))
    start = max(0, file.seek(0, os.SEEK_END) - _FOOTER_END.size - length)
    file.seek(start)
    footer = _SAID.sub(lambda said: said[0][: -len(_NO_DIGEST)] + _NO_DIGEST if said[3] else said[0], file.read())
    return hashlib.sha256(footer).hexdigest().encode()


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
