"""Rows that need no reading, because the same bytes are or were read under another name: of a copy, a document that was
renamed, one that came back.

Of the documents of a run with the same bytes, the first that is known is read; the rows of the others are made once its
rows are finished. Rows that earlier runs have read, of whatever document, serve at once.
"""

from __future__ import annotations

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


def serves(row: IndexedRow | None, doc_id: str) -> bool:
    """Whether the row holds for every file with these bytes."""
    return row is not None and row.doc_id == doc_id and row.error_kind not in _OF_THE_FILE


def copied(row: PageResult, source: str) -> PageResult:
    """The row, for another document with the same bytes. A failed page is not tried again, and its message says so."""
    if row.error_kind is not None and row.attempts:  # without, it is a copy itself
        said = f"{row.error_message or ''} (not tried here: it is the same file as {row.source})"
        row = replace(row, error_message=said)
    return replace(row, source=source)
