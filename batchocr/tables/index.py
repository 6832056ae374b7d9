"""What a run remembers about each row that it has read: its state and where its line is in the journal, not its text.

Of the rows of the table that it continues, that is looked up in the table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_core import from_json

from batchocr.data import ErrorKind, PageNumber, PageResult, Status
from batchocr.storage.checksums import is_sound


@dataclass(frozen=True, slots=True)
class IndexedRow:
    """A row without its text."""

    page_index: PageNumber | None
    status: Status
    doc_id: str | None
    page_count: PageNumber | None
    attempts: int
    offset: int
    """Of its line in the journal, in bytes; of a row of the table, its number there."""
    length: int
    """Of its line in the journal, in bytes; 0 for a row of the table."""
    file_bytes: int | None = None
    file_mtime_ns: int | None = None
    error_kind: ErrorKind | None = None

    @property
    def version(self) -> tuple[int | None, int | None]:
        """Size and time of the file when it was read."""
        return self.file_bytes, self.file_mtime_ns


_LASTING: Final[frozenset[ErrorKind | None]] = frozenset({"damaged", "unsupported"})
"""What is wrong with a file as long as it is the same."""

_ROW = TypeAdapter(IndexedRow)
_QUALITY: dict[Status, int] = {"ok": 2, "degraded": 1, "failed": 0, "skipped": 0}


class RowIndex:
    """The rows that count, by document: the last for each (source, page_index), but no failure after a success.

    earlier: the rows that a document had before; none for one that is new.
    """

    def __init__(self, earlier: Callable[[str], Sequence[IndexedRow]] = lambda source: ()) -> None:
        self.end = 0
        """Of the lines that were taken, in bytes: where the next one begins."""
        self._earlier = earlier
        self._rows: dict[str, list[IndexedRow]] = {}
        self._best: dict[str, dict[int | None, Status]] = {}

    def take(self, line: bytes) -> bool:
        """Add the next line of the journal. Returns whether a sound row is in it."""
        found = _indexed(line, self.end)
        if found is not None:
            self.put(*found)
        self.end += len(line)
        return found is not None

    def forget(self) -> None:
        """Drop the rows: they are in the table."""
        self._rows.clear()
        self._best.clear()

    def sources(self) -> Collection[str]:
        """Every document of which a line was taken."""
        return self._rows.keys()

    def rows(self, source: str) -> Sequence[IndexedRow]:
        """All rows of a document by page; the row of the document as a whole (page_index None) comes first."""
        return tuple(self._rows_of(source))

    def find(self, source: str, page_index: int | None) -> IndexedRow | None:
        """The row of a page, or of the document as a whole; None if there is none yet."""
        rows = self._rows_of(source)
        position = bisect_left(rows, page_rank(page_index), key=_row_rank)
        if position < len(rows) and rows[position].page_index == page_index:
            return rows[position]
        return None

    def worsened(self, source: str) -> Collection[int | None]:
        """The pages of a document that had a better row before, of an earlier version of the file."""
        return self._best.get(source, {}).keys()

    def put(self, source: str, row: IndexedRow) -> None:
        """Add a later row. A failure does not replace a success of the same file (`doc_id`)."""
        if source not in self._rows:
            self._rows[source] = [*self._earlier(source)]
        rows = self._rows[source]
        if rows:
            row = _sharing(row, rows[-1])
        position = bisect_left(rows, page_rank(row.page_index), key=_row_rank)
        if position == len(rows) or rows[position].page_index != row.page_index:
            rows.insert(position, row)
        elif not is_failed_again(row, rows[position]):
            self._note_best(source, row, rows[position])
            rows[position] = row

    def _rows_of(self, source: str) -> Sequence[IndexedRow]:
        return self._rows[source] if source in self._rows else self._earlier(source)

    def _note_best(self, source: str, row: IndexedRow, earlier: IndexedRow) -> None:
        best = self._best.get(source, {}).pop(row.page_index, earlier.status)
        if _QUALITY[row.status] < _QUALITY[best]:
            self._best.setdefault(source, {})[row.page_index] = best


def _indexed(line: bytes, offset: int) -> tuple[str, IndexedRow] | None:
    """The document of the row in a line, and what is remembered of the row; None if it is damaged, or no row."""
    if not is_sound(line):
        return None
    try:
        row: dict[str, Any] = from_json(line)
        return row["source"], _ROW.validate_python(row | {"offset": offset, "length": len(line)})
    except (ValueError, KeyError, TypeError):  # ValidationError; the first line has other keys
        return None


def page_rank(page_index: int | None) -> int:
    """Where a row stands among those of its document; the document as a whole comes first."""
    return -1 if page_index is None else page_index


def _row_rank(row: IndexedRow) -> int:
    return page_rank(row.page_index)


def _sharing(row: IndexedRow, neighbour: IndexedRow) -> IndexedRow:
    """The row with its neighbour's objects if they describe the same file: this halves what a row takes."""
    if (row.doc_id, row.version) != (neighbour.doc_id, neighbour.version):
        return row
    of_file = {name: getattr(neighbour, name) for name in ("doc_id", "file_bytes", "file_mtime_ns")}
    return replace(row, **of_file)


def is_failed_again(later: IndexedRow | PageResult, earlier: IndexedRow) -> bool:
    """Whether the later row is a failure of a page that was read before, in the same version of its file."""
    was_read = earlier.status in ("ok", "degraded")
    return later.status == "failed" and was_read and later.doc_id == earlier.doc_id


def may_retry(error_kind: ErrorKind | None, retry_failed: bool | None) -> bool:
    """Whether a row that failed is begun again, if its file has not changed. retry_failed: as the option."""
    return error_kind not in _LASTING if retry_failed is None else retry_failed


def settled(rows: Iterable[IndexedRow], retry_failed: bool | None) -> list[IndexedRow]:
    """The rows that need no further attempt, if their files have not changed."""
    return [row for row in rows if row.status != "failed" or not may_retry(row.error_kind, retry_failed)]
