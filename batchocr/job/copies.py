"""Rows that need no reading, because another document of the run has the same bytes: they are made from its rows.

The first of such documents that is known is read; each row of the others is made once that of the first is finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from batchocr.data import Document, ErrorKind, Failure, PageResult
from batchocr.job.row_queue import RowKey
from batchocr.tables.index import IndexedRow

_OF_THE_FILE: Final[frozenset[ErrorKind | None]] = frozenset({"not_found", "unreadable", "changed"})
"""What is wrong with the place of one file, and not with what is in it."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A row that is to be made, and that of which it is made."""

    key: RowKey
    first: RowKey


class Copies:
    """Those that are to be made. ready: the first's row is finished. num_documents: how many have such rows."""

    def __init__(self) -> None:
        self.ready: deque[Copy] = deque()
        self.num_documents = 0
        self._waiting: dict[RowKey, list[Copy]] = {}

    @property
    def are_left(self) -> bool:
        """Whether there are any still to be made."""
        return bool(self.ready or self._waiting)

    def add(self, copies: Iterable[Copy], *, ready: Iterable[bool]) -> None:
        """Have the rows of a document made. ready: whether the first's row is finished, of each."""
        self.num_documents += 1
        for copy, is_ready in zip(copies, ready, strict=True):
            if is_ready:
                self.ready.append(copy)
            else:
                self._waiting.setdefault(copy.first, []).append(copy)

    def finished(self, key: RowKey) -> None:
        """Record that a row is finished, which others may be waiting for."""
        self.ready += self._waiting.pop(key, ())


def is_of_content(row: IndexedRow) -> bool:
    """Whether the row says what every file of the same bytes would have, and is not to be read again."""
    return row.error_kind not in _OF_THE_FILE


def copied(row: PageResult, first: Document, copy: Document) -> PageResult:
    """The row of a document, made from that of the first. What has failed is not tried again, and says so."""
    if row.error_kind is not None:
        failure = of_a_copy(Failure(row.error_kind, row.error_message or ""), first)
        row = replace(row, error_message=failure.message)
    return replace(row, source=copy.source)


def of_a_copy(failure: Failure, first: Document) -> Failure:
    """What the row of a document says that is not tried, because the first has failed."""
    return Failure(failure.kind, f"{failure.message} (not tried here: it is the same file as {first.source})")
