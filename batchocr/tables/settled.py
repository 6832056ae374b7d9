"""What a table says of its rows without their text, as arrays: which documents need no further look, and how good their
pages seem.

A row is known by its number in the table, a document by its number among those of the table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchocr.data import MAX_PAGES, Document, ErrorKind, PageResult, Status
from batchocr.option_values import PageSpec
from batchocr.tables.index import IndexedRow, may_retry
from batchocr.tables.page_quality import DOUBTFUL

SETTLED_SCHEMA: Final = pa.schema(
    {
        **dict.fromkeys(("source", "status", "doc_id", "error_kind"), pa.string()),
        **dict.fromkeys(("page_index", "page_count", "attempts", "file_bytes", "file_mtime_ns"), pa.int64()),
        **dict.fromkeys(("ink_outside", "text_layer_agreement"), pa.float64()),
        "blocks": pa.list_(pa.struct({"confidence": pa.float64(), "finish_reason": pa.string()})),
    }
)
"""The columns that are looked at."""
LEAVES: Final = {*SETTLED_SCHEMA.names, "blocks.list.element.confidence", "blocks.list.element.finish_reason"}
"""As Parquet calls them."""

STATUSES: Final[Sequence[Status]] = get_args(Status)
ERROR_KINDS: Final[Sequence[ErrorKind]] = get_args(ErrorKind)
_NULL: Final = -(1 << 63)
_OF_INDEX: Final = [field.name for field in fields(IndexedRow) if field.name not in ("offset", "length")]

Version = tuple[int | None, int | None]
"""Size and time of a file."""
Array = NDArray[Any]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class Kept(NamedTuple):
    """Rows of a table that stay as they are in the one that takes its place."""

    start: int
    stop: int


class Unread(NamedTuple):
    """A row that is read when it is written."""

    source: str
    page_index: int | None
    is_asked: bool
    """Whether the run was to read it."""
    version: Version | None
    """Of its file, if that was touched and is the same."""
    number: int
    """Its number in the table; negative if it is not there."""
    load: Callable[[Unread], PageResult]


Row: TypeAlias = PageResult | Unread | Kept


def version_of(document: Document) -> Version:
    """Size and time of a document's file as it is now; of one that cannot be looked at, None."""
    if document.size is None:
        with suppress(OSError):
            file = os.stat(document.path)
            return file.st_size, file.st_mtime_ns
    return document.size, document.mtime_ns


def possible(table: pa.Table) -> pa.Table:
    """The table. Raises ValueError, which names the column, if a row is of a page that no document can have, or has a
    status that is none."""
    for name in ("page_index", "page_count"):
        for value in pc.min_max(table[name]).as_py().values() if name in table.column_names else ():
            if not 0 <= (value or 0) <= MAX_PAGES:
                raise ValueError(f"{name}: no document has {value}")
    if "status" in table.column_names and not {*pc.unique(table["status"]).to_pylist()} <= {*STATUSES}:
        raise ValueError("status: a row has one that is none")
    return table


def read(row: PageResult | Unread) -> PageResult:
    """The row itself."""
    return row.load(row) if isinstance(row, Unread) else row


class SettledColumns:
    """The rows of a table without their text. What is null is negative.

    tables: all rows, in order, with the columns of SETTLED_SCHEMA. read: the same, of the rows from one number up to
    another.
    """

    def __init__(self, tables: Iterable[pa.Table], read: Callable[[int, int], pa.Table]) -> None:
        parts = [_Arrays(table) for table in _undivided(tables)]

        def joined(name: str) -> Array:
            return np.concatenate([getattr(part, name) for part in parts])

        self.page_index: NDArray[np.int32] = joined("page_index")
        self.status, self.error_kind = joined("status"), joined("error_kind")
        """Of each row, the places in STATUSES and ERROR_KINDS."""
        self.is_doubtful: Flags = joined("is_doubtful")
        self.ink_outside, self.agreement = joined("ink_outside"), joined("agreement")
        """Of each row, in thousandths."""
        self.page_count, self.file_bytes, self.file_mtime_ns = map(
            joined, ("page_count", "file_bytes", "file_mtime_ns")
        )
        """Of each document, as its first row says."""
        self._is_uniform = joined("is_uniform")
        self.first: Numbers = np.append(0, np.cumsum(joined("length")))
        """The first row of each document, and at the end the number of rows."""
        self.sources = pa.chunked_array([part.source for part in parts], pa.string())
        self._hash_of_id: Numbers = joined("hash_of_id")
        """The `doc_id` itself is read where it matters: all of them would take as much memory as all the rest."""
        self._read = read

    @property
    def num_rows(self) -> int:
        """How many rows the table has."""
        return len(self.status)

    def asked(self, spec: PageSpec | None, retry_failed: bool | None) -> tuple[Flags, Numbers]:
        """Which rows are of pages that a run asks for. And of each document, how many it has of them, if it has all of
        them, and they need no further attempt unless the file has changed; else 0."""
        page_counts = np.repeat(self.page_count, np.diff(self.first))
        asked = np.where(page_counts > 0, _in_spec(spec, self.page_index, page_counts), self.page_index < 0)
        lasts = np.array([not may_retry(kind, retry_failed) for kind in (*ERROR_KINDS, None)])
        is_settled = (self.status != STATUSES.index("failed")) | lasts[self.error_kind]
        wanted, first = _num_pages(spec, self.page_count), self.first[:-1]
        has_all = self._is_uniform & (np.add.reduceat(asked, first) == wanted)
        return asked, np.where(has_all & np.logical_and.reduceat(is_settled, first), wanted, 0)

    def rows(self, source: str) -> list[IndexedRow]:
        """What is known of a document's rows; nothing if it has none."""
        if (document := self.document_of(source)) is None:
            return []
        first, end = self.first[document : document + 2].tolist()
        rows = self._read(first, end).select(_OF_INDEX).to_pylist()
        return [IndexedRow(**row, offset=number, length=0) for number, row in enumerate(rows, start=first)]

    def source_of(self, doc_id: str) -> str | None:
        """The first document with this content of which there are pages. Raises as `read` does."""
        document = self._places_of_ids.first(doc_id)
        return None if document is None else self.sources[document].as_py()

    def document_of(self, source: str) -> int | None:
        """The number of a document; None if it has no rows."""
        return self._places_of_sources.first(source)

    def begin_of_document(self, row: int) -> int:
        """The first row from this one on with which a document begins, or the number of rows."""
        return int(self.first[np.searchsorted(self.first, min(row, self.num_rows))])

    @cached_property
    def _places_of_sources(self) -> _Places:
        hashes = np.concatenate([_hashes(chunk) for chunk in self.sources.iterchunks()])
        return _Places(hashes, lambda document: self.sources[document].as_py())

    @cached_property
    def _places_of_ids(self) -> _Places:
        has_pages = self.page_index[self.first[:-1]] >= 0
        return _Places(self._hash_of_id, self._doc_id, has_pages)

    def _doc_id(self, document: int) -> str | None:
        first = int(self.first[document])
        doc_id: str | None = self._read(first, first + 1)["doc_id"][0].as_py()
        return doc_id


class _Places:
    """Where each string of many is. It takes 16 bytes for each, a dictionary some 200."""

    def __init__(self, hashes: Numbers, string_at: Callable[[int], str | None], is_one: Flags | None = None) -> None:
        """is_one: which of the strings count, if not all do."""
        order = np.argsort(hashes, kind="stable")
        self._order = order if is_one is None else order[is_one[order]]
        self._hashes = hashes[self._order]
        self._string_at = string_at

    def first(self, string: str) -> int | None:
        """The first place of a string; None if it is nowhere."""
        index = int(np.searchsorted(self._hashes, hash(string)))
        while index < len(self._hashes) and self._hashes[index] == hash(string):
            place = int(self._order[index])
            if self._string_at(place) == string:
                return place
            index += 1
        return None


def _hashes(strings: Any) -> Numbers:
    """Python's hashes of an Arrow array's strings; they differ from process to process."""
    return np.fromiter(map(hash, strings.to_pylist()), np.int64, len(strings))


class _Arrays:
    """The same of some documents of a table."""

    def __init__(self, table: pa.Table) -> None:
        def column(name: str) -> Any:
            return table[name].combine_chunks()

        def numbers(name: str) -> Array:
            values: Array = column(name).fill_null(_NULL).to_numpy()
            return values

        source, doc_id = column("source"), column("doc_id").fill_null("")
        begins = _differs(source)
        first = np.flatnonzero(begins)
        of_file = [numbers(name) for name in ("page_count", "file_bytes", "file_mtime_ns")]
        is_other = np.logical_or.reduce([_differs(doc_id), *map(_differs, of_file)]) & ~begins
        self.source = source.filter(pa.array(begins))
        self.hash_of_id = _hashes(doc_id.filter(pa.array(begins)))
        self.length = np.diff(np.append(first, len(table)))
        self.page_count, self.file_bytes, self.file_mtime_ns = (values[first] for values in of_file)
        self.is_uniform = ~np.logical_or.reduceat(is_other, first) if len(first) else is_other
        self.page_index = np.maximum(numbers("page_index"), -1).astype(np.int32)
        self.status, self.error_kind = (
            pc.index_in(column(name), pa.array(values)).fill_null(-1).to_numpy().astype(np.int8)
            for name, values in (("status", STATUSES), ("error_kind", ERROR_KINDS))
        )
        shares = column("ink_outside"), column("text_layer_agreement")
        self.ink_outside, self.agreement = (
            np.nan_to_num(np.rint(share.to_numpy(zero_copy_only=False) * 1000), nan=-1).astype(np.int16)
            for share in shares
        )
        self.is_doubtful = _are_doubtful(column("status"), *shares, column("blocks"))


def _are_doubtful(status: Any, ink_outside: Any, agreement: Any, blocks: Any) -> Flags:
    """`is_doubtful` of many rows: Arrow arrays of these columns; of `blocks`, `confidence` and `finish_reason`."""
    lengths = blocks.value_lengths().fill_null(0).to_numpy()
    rows, of_rows = np.repeat(np.arange(len(blocks)), lengths), blocks.flatten()
    certain = np.ones(len(blocks))
    np.minimum.at(certain, rows, _shares(of_rows.field("confidence"), 1.0))
    is_loop = pc.equal(of_rows.field("finish_reason"), "repetition").fill_null(False)
    loops = np.bincount(rows, weights=is_loop.to_numpy(zero_copy_only=False), minlength=len(blocks))
    quality = (1.0 - _shares(ink_outside, 0.0)) * _shares(agreement, 1.0) * certain * 0.5**loops
    is_read = pc.is_in(status, pa.array(["ok", "degraded"])).to_numpy(zero_copy_only=False)
    are: Flags = is_read & (quality < DOUBTFUL)
    return are


def _shares(values: Any, unknown: float) -> NDArray[np.float64]:
    """The values of an Arrow array as shares from 0 to 1."""
    numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
    shares: NDArray[np.float64] = np.clip(np.nan_to_num(numbers, nan=unknown), 0.0, 1.0)
    return shares


def _undivided(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows divided otherwise, so that all of a document are together."""
    rest = SETTLED_SCHEMA.empty_table()
    for given in tables:
        both = pa.concat_tables([rest, given], promote_options="default")  # the order of columns differs
        table = both.combine_chunks()
        last = int(np.flatnonzero(_differs(table["source"].combine_chunks()))[-1]) if len(table) else 0
        yield table.slice(0, last)
        rest = table.slice(last)
    yield rest


def _differs(values: Any) -> Flags:
    """Where a value is not the one before it; the first is not."""
    is_other = np.ones(len(values), np.bool_)
    if isinstance(values, np.ndarray):
        is_other[1:] = values[1:] != values[:-1]
    else:
        is_other[1:] = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    return is_other


def _in_spec(spec: PageSpec | None, pages: Array, page_counts: Numbers) -> Flags:
    """Which of the pages are asked for, each of a document of so many pages."""
    inside: Flags = pages >= (0 if spec is None else page_counts)
    for ends in spec.ranges if spec else ():
        first, last = (page_counts + end if end < 0 else end - 1 for end in ends)
        inside |= (pages >= first) & (pages <= last)
    return inside & (pages >= 0)


def _num_pages(spec: PageSpec | None, page_counts: Numbers) -> Numbers:
    """How many rows each document has, if pages of it are asked for; one if it has none."""
    different, places = np.unique(page_counts, return_inverse=True)
    wanted = [(count if spec is None else len(spec.pages(count))) if count > 0 else 1 for count in different.tolist()]
    return np.array(wanted, np.int64)[places]
