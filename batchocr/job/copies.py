"""Rows that need no reading, because the same bytes are or were read under another name: of a copy, a document that was
renamed, one that came back.

Of the documents of a run with the same bytes, the first that is known is read; the rows of the others are made once its
rows are finished. Rows that earlier runs have read, of whatever document, serve at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final, NamedTuple

from batchocr.data import ErrorKind, PageResult
from batchocr.job.row_queue import RowKey
from batchocr.tables.index import IndexedRow

_OF_THE_FILE: Final[frozenset[ErrorKind | None]] = frozenset({"not_found", "unreadable", "changed"})
"""Errors that concern one file and not its content, so that a copy of the file may not have them."""


class Copy(NamedTuple):
    """A row to be copied. of: the `source` of the document whose row it copies."""

    key: RowKey
    of: str


class Copies:
    """The copies of this run that are not made yet. ready: the row that they copy is finished. waiting: the others, by
    the row that they copy."""

    def __init__(self) -> None:
        self.ready: deque[Copy] = deque()
        self.waiting: dict[RowKey, list[Copy]] = {}

    def wait(self, copy: Copy, first: RowKey) -> None:
        """Make the copy once the row `first` of this run is finished."""
        self.waiting.setdefault(first, []).append(copy)

    def finished(self, key: RowKey) -> None:
        """Record that a row is finished: its copies are ready."""
        self.ready += self.waiting.pop(key, ())


def serves(row: IndexedRow | None, doc_id: str) -> bool:
    """Whether the row holds for every file with these bytes."""
    return row is not None and row.doc_id == doc_id and row.error_kind not in _OF_THE_FILE


def copied(row: PageResult, source: str) -> PageResult:
    """The row, for another document with the same bytes. A failed page is not tried again, and its message says so."""
    if row.error_kind is not None and row.attempts:  # without, it is a copy itself
        said = f"{row.error_message or ''} (not tried here: it is the same file as {row.source})"
        row = replace(row, error_message=said)
    return replace(row, source=source)
