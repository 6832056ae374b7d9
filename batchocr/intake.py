"""What is still to be read, in input order: which document to open next, which row to begin next."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from batchocr.data import Document, ErrorKind
from batchocr.input.page_spec import PageSpec
from batchocr.output.index import IndexedRow


class FinishedRows(Protocol):
    """What the journal knows of rows that were finished before."""

    def rows(self, source: str) -> tuple[IndexedRow, ...]:
        """A document's rows, by page; the document as a whole (page_index None) comes first."""
        ...


@dataclass(frozen=True, slots=True)
class RowKey:
    """A row of the output. document: index into the run's documents. page_index: None for the document as a whole."""

    document: int
    page_index: int | None


@dataclass(slots=True)
class DocumentState:
    """What has been learnt of a document.

    rows: the page indices that get a row, [None] for the document as a whole; None until that is known.
    done: those that an earlier run dealt with. problem: why the document cannot be opened.
    """

    page_count: int | None = None
    doc_id: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    problem: tuple[ErrorKind, str] | None = None
    rows: Sequence[int | None] | None = None
    done: frozenset[int | None] = frozenset()


class RowCursor:
    """Walks over the rows of all documents in input order, as far as their documents are known."""

    def __init__(self, states: Sequence[DocumentState], limit: int | None) -> None:
        self._states = states
        self._remaining = limit
        self._document = 0
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._document >= len(self._states)

    def next(self) -> RowKey | None:
        """The next row; None at the end, or while its document is not known."""
        while not self.at_end:
            rows = self._states[self._document].rows
            if rows is None:
                return None
            if self._remaining == 0:
                self._document = len(self._states)
            elif self._position == len(rows):
                self._document, self._position = self._document + 1, 0
            else:
                self._position += 1
                self._remaining = None if self._remaining is None else self._remaining - 1
                return RowKey(self._document, rows[self._position - 1])
        return None


class Intake:
    """Hands out documents to open and rows to begin, and owns what is known of each document.

    Documents are opened ahead, in any order; rows are handed out strictly in input order, so that `limit` means the
    same rows in every run.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        spec: PageSpec | None,
        finished: FinishedRows | None,
        *,
        limit: int | None,
    ) -> None:
        self.documents = documents
        self.states = [DocumentState() for _ in documents]
        self.num_planned = 0
        self.num_handed_out = 0
        self.num_done_before = 0
        self._spec = spec
        self._finished = finished
        self._limit = limit
        self._num_opened = 0
        self._num_known = 0
        self._cursor = self.rows()
        self._given_back: deque[RowKey] = deque()

    @property
    def exhausted(self) -> bool:
        """Whether every row has been handed out."""
        return not self._given_back and self._cursor.at_end

    @property
    def all_planned(self) -> bool:
        """Whether `num_planned` is final."""
        return self._cursor.at_end or self._num_known == len(self.documents)

    def rows(self) -> RowCursor:
        """A walk over every row of the output, those done before among them."""
        return RowCursor(self.states, self._limit)

    def next_document(self) -> int | None:
        """The next document that has to be opened to learn its pages; None when there is none left."""
        while not self._cursor.at_end and self._num_opened < len(self.documents):
            index = self._num_opened
            self._num_opened += 1
            document = self.documents[index]
            if document.error_kind is not None:
                self.not_opened(index, document.error_kind, document.error_message or "")
            elif not self._unchanged(index):
                return index
        return None

    def opened(self, index: int, *, page_count: int, doc_id: str, size: int, mtime_ns: int) -> None:
        """A document was opened. One without pages gets a row for the whole."""
        state = self.states[index]
        state.size, state.mtime_ns = size, mtime_ns
        self._plan(index, page_count, doc_id)

    def not_opened(self, index: int, kind: ErrorKind, message: str, doc_id: str | None = None) -> None:
        """A document cannot be opened: one failed row for the whole."""
        state = self.states[index]
        state.problem, state.doc_id, state.rows = (kind, message), doc_id, [None]
        self.num_planned += 1
        self._num_known += 1

    def next_row(self) -> RowKey | None:
        """The next row to begin; None while its document is not opened yet, or when there is none left."""
        if self._given_back:
            return self._given_back.popleft()
        while (key := self._cursor.next()) is not None:
            self.num_handed_out += 1
            if key.page_index not in self.states[key.document].done:
                return key
            self.num_done_before += 1
        return None

    def give_back(self, key: RowKey) -> None:
        """Have a row that was handed out begun once more, before all others."""
        self._given_back.appendleft(key)

    def _unchanged(self, index: int) -> bool:
        """Plan a document from what an earlier run learnt of it, if its file has not been touched since."""
        rows = self._finished.rows(self.documents[index].source) if self._finished else ()
        known = next((row for row in rows if row.status != "failed"), None)
        if known is None or known.page_count is None or known.doc_id is None or known.size is None:
            return False
        try:
            file = os.stat(self.documents[index].path)
        except OSError:
            return False
        if (file.st_size, file.st_mtime_ns) != (known.size, known.mtime_ns):
            return False
        self.states[index].size, self.states[index].mtime_ns = known.size, known.mtime_ns
        self._plan(index, known.page_count, known.doc_id)
        return True

    def _plan(self, index: int, page_count: int, doc_id: str) -> None:
        state = self.states[index]
        state.page_count, state.doc_id = page_count, doc_id
        if page_count == 0:
            state.rows = [None]
        else:
            state.rows = self._spec.pages(page_count) if self._spec else range(page_count)
        earlier = self._finished.rows(self.documents[index].source) if self._finished else ()
        state.done = frozenset(
            row.page_index for row in earlier if row.status != "failed" and row.doc_id == doc_id
        ).intersection(state.rows)
        self.num_planned += len(state.rows)
        self._num_known += 1
