"""What a table says of its rows without their text, as arrays: which documents need no further look, and how good their
pages seem.

A row is known by its number in the table, a document by its number among those of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from batchocr.data import ErrorKind, Status
from batchocr.option_values import PageSpec
from batchocr.tables.index import IndexedRow, may_retry
from batchocr.tables.page_quality import are_doubtful

_BLOCK: Final = pa.struct({"confidence": pa.float64(), "finish_reason": pa.string()})
_NUMBERS: Final = ("page_index", "page_count", "attempts", "file_bytes", "file_mtime_ns")
SETTLED_SCHEMA: Final = pa.schema(
    {
        **dict.fromkeys(("source", "doc_id", "status", "error_kind"), pa.string()),
        **dict.fromkeys(_NUMBERS, pa.int64()),
        **dict.fromkeys(("ink_outside", "text_layer_agreement"), pa.float64()),
        "blocks": pa.list_(_BLOCK),
    }
)
"""The columns that are looked at."""

STATUSES: Final[Sequence[Status]] = get_args(Status)
ERROR_KINDS: Final[Sequence[ErrorKind]] = get_args(ErrorKind)
_NULL: Final = -(1 << 63)

_KEPT: Final = pa.schema(
    [
        *(field for field in SETTLED_SCHEMA if field.name not in ("status", "error_kind", "blocks")),
        *(pa.field(name, pa.int8()) for name in ("status", "error_kind")),
        pa.field("is_doubtful", pa.bool_()),
    ]
)

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


Version = tuple[int | None, int | None]
"""Size and time of a file."""


class Kept(NamedTuple):
    """Rows of a table that stay as they are in the one that takes its place."""

    start: int
    stop: int
    version: Version | None = None
    """Of their file, if it was touched and is the same."""


class SettledColumns:
    """The rows of a table without their text. Numbers that are null are -2**63, shares NaN, and errors -1.

    batches: all rows, in order, with the columns of SETTLED_SCHEMA; of a table of an earlier version, some are missing.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        table = pa.Table.from_batches(map(_without_blocks, batches), _KEPT)
        source, self._ids = (_encoded(table[name]) for name in ("source", "doc_id"))
        self._rows: dict[str, NDArray[Any]] = {name: table[name].to_numpy() for name in _KEPT.names[2:]}
        codes = source.indices.to_numpy()
        begins = np.flatnonzero(np.diff(codes, prepend=-1))
        self.first: Numbers = np.append(begins, len(codes))
        """The first row of each document, and at the end the number of rows."""
        self.sources = source.dictionary.take(pa.array(codes[begins]))
        """Of each document."""

    @property
    def num_rows(self) -> int:
        """How many rows the table has."""
        return int(self.first[-1])

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column of numbers or shares; of `status` and `error_kind`, the places in STATUSES and ERROR_KINDS; and
        `is_doubtful`."""
        return self._rows[name]

    def of_documents(self, name: str) -> NDArray[Any]:
        """The same, of each document's first row."""
        return self._rows[name][self.first[:-1]]

    def asked(self, spec: PageSpec | None, retry_failed: bool | None) -> tuple[Flags, Numbers]:
        """Which rows are of pages that a run asks for. And of each document, how many it has of them, if it has all of
        them, and they need no further attempt unless the file has changed; else 0."""
        pages, counts, of_documents = self["page_index"], self["page_count"], np.diff(self.first)
        asked = np.where(counts > 0, _in_spec(spec, pages, counts), pages < 0)
        lasts = np.array([not may_retry(kind, retry_failed) for kind in (*ERROR_KINDS, None)])
        is_settled = (self["status"] != STATUSES.index("failed")) | lasts[self["error_kind"]]
        ids = self._ids.indices.fill_null(-1).to_numpy()
        for numbers in (ids, counts, self["file_bytes"], self["file_mtime_ns"]):
            is_settled &= numbers == np.repeat(numbers[self.first[:-1]], of_documents)
        wanted = _num_pages(spec, self.of_documents("page_count"))
        has_all = np.add.reduceat(asked, self.first[:-1]) == wanted
        return asked, np.where(has_all & np.logical_and.reduceat(is_settled, self.first[:-1]), wanted, 0)

    def rows(self, source: str) -> list[IndexedRow]:
        """What is known of a document's rows; nothing if it has none."""
        document = self._by_source.get(source)
        return [] if document is None else [self._row(row) for row in range(*self.first[document : document + 2])]

    def source_of(self, doc_id: str) -> str | None:
        """The first document with this content of which there are pages."""
        row = self._by_doc_id.get(doc_id)
        return None if row is None else self.sources[int(np.searchsorted(self.first, row, "right")) - 1].as_py()

    def begin_of_document(self, row: int) -> int:
        """The first row from this one on with which a document begins, or the number of rows."""
        return int(self.first[np.searchsorted(self.first, min(row, self.num_rows))])

    @cached_property
    def _by_source(self) -> dict[str, int]:
        return {source: document for document, source in enumerate(self.sources.to_pylist())}

    @cached_property
    def _by_doc_id(self) -> dict[str, int]:
        codes = self._ids.indices.fill_null(-1).to_numpy()
        rows = np.flatnonzero((codes >= 0) & (self["page_index"] >= 0))[::-1]
        ids = self._ids.dictionary.to_pylist()
        return {ids[code]: row for code, row in zip(codes[rows].tolist(), rows.tolist(), strict=True)}

    def _row(self, row: int) -> IndexedRow:
        values = ((name, int(self[name][row])) for name in _NUMBERS)
        numbers: dict[str, Any] = {name: None if value == _NULL else value for name, value in values}
        error = int(self["error_kind"][row])
        return IndexedRow(
            **numbers,
            status=STATUSES[self["status"][row]],
            doc_id=self._ids[row].as_py(),
            error_kind=None if error < 0 else ERROR_KINDS[error],
            offset=row,
            length=0,
        )


def _without_blocks(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are kept of a batch."""
    given = set(batch.schema.names)
    columns = {
        field.name: batch[field.name] if field.name in given else pa.nulls(batch.num_rows, field.type)
        for field in SETTLED_SCHEMA
    }
    for name in _NUMBERS:
        columns[name] = columns[name].fill_null(_NULL)
    columns["is_doubtful"] = pa.array(
        are_doubtful(columns["status"], columns["ink_outside"], columns["text_layer_agreement"], columns["blocks"])
    )
    for name, values in (("status", STATUSES), ("error_kind", ERROR_KINDS)):
        columns[name] = pc.index_in(columns[name], pa.array(values)).fill_null(-1).cast(pa.int8())
    return pa.RecordBatch.from_arrays([columns[name] for name in _KEPT.names], schema=_KEPT)


def _encoded(column: pa.ChunkedArray[pa.StringScalar]) -> pa.DictionaryArray:
    return pa.chunked_array(
        column.dictionary_encode().unify_dictionaries(), pa.dictionary(pa.int32(), pa.string())
    ).combine_chunks()


def _in_spec(spec: PageSpec | None, pages: Numbers, page_counts: Numbers) -> Flags:
    """Which of the pages are asked for, each of a document of so many pages."""
    inside: Flags = pages >= (0 if spec is None else page_counts)
    for ends in spec.ranges if spec else ():
        first, last = (page_counts + end if end < 0 else end - 1 for end in ends)
        inside |= (pages >= first) & (pages <= last)
    return inside


def _num_pages(spec: PageSpec | None, page_counts: Numbers) -> Numbers:
    """How many rows each document has, if pages of it are asked for; one if it has none."""
    different, places = np.unique(page_counts, return_inverse=True)
    wanted = [max(0, count) or 1 for count in different.tolist()]
    if spec is not None:
        wanted = [len(spec.pages(count)) if count > 0 else 1 for count in different.tolist()]
    return np.array(wanted, np.int64)[places]
