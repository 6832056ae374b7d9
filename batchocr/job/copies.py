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
"""What is wrong with the place of one file, and not with what is in it."""


class Copy(NamedTuple):
    """A row that is to be made, and the `source` of the document of whose row it is made."""

    key: RowKey
    of: str


class Copies:
    """Those that are to be made. ready: the row of which it is made is finished."""

    def __init__(self) -> None:
        self.ready: deque[Copy] = deque()
        self._waiting: dict[RowKey, list[Copy]] = {}

    @property
    def are_left(self) -> bool:
        """Whether there are any still to be made."""
        return bool(self.ready or self._waiting)

    def wait(self, copy: Copy, first: RowKey) -> None:
        """Have a row made when another of this run is finished."""
        self._waiting.setdefault(first, []).append(copy)

    def finished(self, key: RowKey) -> None:
        """Record that a row is finished, which others may be waiting for."""
        self.ready += self._waiting.pop(key, ())


def serves(row: IndexedRow | None, doc_id: str) -> bool:
    """Whether the row says what every file of these bytes would have."""
    return row is not None and row.doc_id == doc_id and row.error_kind not in _OF_THE_FILE


def copied(row: PageResult, source: str) -> PageResult:
    """The row of another document of the same bytes. What has failed is not tried again, and says so."""
    if row.error_kind is not None and row.attempts:  # without, it is a copy itself
        said = f"{row.error_message or ''} (not tried here: it is the same file as {row.source})"
        row = replace(row, error_message=said)
    return replace(row, source=source)
