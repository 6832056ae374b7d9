"""Rows that need no reading, because the same bytes are or were read under another name: of a copy, a document that was
renamed, one that came back.

Of the documents of a run with the same bytes, the first that is known is read; the rows of the others are made once its
rows are finished. Rows that earlier runs have read, of whatever document, serve at once.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from batchocr.data import Document, ErrorKind, PageResult
from batchocr.job.document_run import DocumentState, RowKey
from batchocr.tables.journal import Journal
from batchocr.tables.known import KnownRow, settled

_OF_THE_FILE: Final[frozenset[ErrorKind | None]] = frozenset({"not_found", "unreadable", "changed"})
"""Errors that concern one file and not its content, so that a copy of the file may not have them."""


class Copies:
    """The rows to be copied, and of which document each is a copy. Those in `ready` can be made now.

    journal: of what was read; without it nothing is copied.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        states: Mapping[int, DocumentState],
        journal: Journal | None,
        retry_failed: bool | None,
    ) -> None:
        self.ready: deque[tuple[RowKey, str]] = deque()
        """Rows that are ready to be copied, each with the `source` of the document whose row it copies."""
        self.num_documents = 0
        """How many documents have rows that are copied."""
        self._documents = documents
        self._states = states
        self._journal = journal
        self._retry_failed = retry_failed
        self._waiting: defaultdict[RowKey, list[RowKey]] = defaultdict(list)
        """The rows that are copied from a row, by that row, which is being read."""
        self._first: dict[str, int] = {}
        """The document of this run that is read, by its doc_id."""
        self._earlier: dict[str, str] = {}
        """The `source` of a document of which an unfinished run has read pages, by its doc_id."""
        for source in journal.known.sources() if journal else ():
            for row in journal.known.rows(source) if journal else ():
                if row.doc_id is not None and row.page_index is not None:
                    self._earlier.setdefault(row.doc_id, source)

    def add(self, index: int) -> frozenset[int | None]:
        """The rows of a document that are copied, and not read."""
        state = self._states[index]
        if self._journal is None or state.doc_id is None or state.rows is None or not state.page_count:
            return frozenset()
        # What an unfinished run has begun to copy has fewer pages than that of which it was copied.
        earlier = self._journal.known.table.source_of(state.doc_id) or self._earlier.get(state.doc_id, "")
        rows = settled(self._journal.known.rows(earlier), self._retry_failed)
        read_before = {row.page_index for row in rows if _serves(row, state.doc_id)}
        first_index = self._first.setdefault(state.doc_id, index)
        first = self._states[first_index]
        is_same = first_index != index and first.page_count == state.page_count
        read_first = first.rows or () if is_same else ()
        pages = [page for page in state.rows if page is not None and page not in state.done]
        copied = [page for page in pages if page in read_before or page in read_first]
        for page in copied:
            if page in read_before:
                self.ready.append((RowKey(index, page), earlier))
            elif page in first.done or first.ended >> page & 1:
                self.ready.append((RowKey(index, page), self._documents[first_index].source))
            else:
                self._waiting[RowKey(first_index, page)].append(RowKey(index, page))
        self.num_documents += bool(copied)
        return frozenset(copied)

    def ended(self, key: RowKey) -> None:
        """Record that a row has ended: those that wait for it are ready."""
        self.ready += ((copy, self._documents[key.document].source) for copy in self._waiting.pop(key, ()))

    def make_next(self) -> tuple[RowKey, PageResult | None]:
        """The next row of `ready`, and the row copied for it; None if the row must be read. Raises OutputError."""
        assert self._journal is not None
        key, source = self.ready.popleft()
        if not _serves(self._journal.known.find(source, key.page_index), self._states[key.document].doc_id or ""):
            return key, None
        row = self._journal.read(source, key.page_index)
        if row.error_kind is not None and row.attempts:  # without, it is a copy itself
            said = f"{row.error_message or ''} (not tried here: it is the same file as {row.source})"
            row = replace(row, error_message=said)
        return key, replace(row, source=self._documents[key.document].source)


def _serves(row: KnownRow | None, doc_id: str) -> bool:
    """Whether the row holds for every file with these bytes."""
    return row is not None and row.doc_id == doc_id and row.error_kind not in _OF_THE_FILE
