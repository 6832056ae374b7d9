"""What is still to be read, in input order: which document to open next, which row to begin next."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
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
        self._spec = spec
        self._finished = finished
        self._limit = limit
        self._opened_to = 0
        self._document = 0
        self._position = 0
        self._given_back: deque[RowKey] = deque()

    @property
    def exhausted(self) -> bool:
        """Whether every row has been handed out."""
        return not self._given_back and self._document >= len(self.documents)

    def next_document(self) -> int | None:
        """The next document that has to be opened to learn its pages; None when there is none left."""
        while self._document < len(self.documents) and self._opened_to < len(self.documents):
            index = self._opened_to
            self._opened_to += 1
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

    def next_row(self) -> RowKey | None:
        """The next row to begin; None while its document is not opened yet, or when there is none left."""
        if self._given_back:
            return self._given_back.popleft()
        while self._document < len(self.documents):
            state = self.states[self._document]
            if state.rows is None:
                return None
            if self.num_handed_out == self._limit:
                self._document = len(self.documents)
            elif self._position == len(state.rows):
                self._document, self._position = self._document + 1, 0
            else:
                page_index = state.rows[self._position]
                self._position += 1
                self.num_handed_out += 1
                if page_index not in state.done:
                    return RowKey(self._document, page_index)
        return None

    def give_back(self, key: RowKey) -> None:
        """Have a row that was handed out begun once more, before all others."""
        self._given_back.appendleft(key)

    def all_rows(self) -> Iterator[RowKey]:
        """Every row of the output, in input order, once all documents are known."""
        remaining = self._limit
        for index, state in enumerate(self.states):
            for page_index in state.rows or ():
                if remaining == 0:
                    return
                yield RowKey(index, page_index)
                remaining = None if remaining is None else remaining - 1

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
