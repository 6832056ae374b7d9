"""What is still to be read, in input order: which document to open next, which row to begin next."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Protocol

from batchocr.data import Document, Failure
from batchocr.output.index import IndexedRow
from batchocr.page_spec import PageSpec

_MAX_WAITING = 100
"""Rows that others may overtake: as many as most documents have, and few enough to scan again and again."""


class FinishedRows(Protocol):
    """What the journal knows about rows that were finished before."""

    def rows(self, source: str) -> tuple[IndexedRow, ...]:
        """A document's rows, by page; that of the document as a whole (page_index None) comes first."""
        ...

    def find(self, source: str, page_index: int | None) -> IndexedRow | None:
        """One row; None if it is not finished."""
        ...


@dataclass(frozen=True, slots=True)
class RowKey:
    """A row of the output. document: index into the run's documents. page_index: None for the document as a whole."""

    document: int
    page_index: int | None


@dataclass(slots=True)
class DocumentState:
    """What has been learnt about a document.

    size and mtime_ns: of the file when it was opened, or just before that failed. rows: the page indices that get a
    row, [None] for the document as a whole; None until that is known. done: those that an earlier run dealt with.
    problem: why the document cannot be opened.
    """

    page_count: int | None = None
    doc_id: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    problem: Failure | None = None
    rows: Sequence[int | None] | None = None
    done: frozenset[int | None] = frozenset()


class Intake:
    """Hands out documents to open and rows to begin, and owns what is known about each document.

    Documents are opened ahead, in any order; rows are first handed out in input order, so that `limit` means the same
    rows in every run. retry_failed: begin rows again that failed in an earlier run. max_unreleased: how many rows may
    be handed out and not yet `released`; None for no limit.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        spec: PageSpec | None,
        finished: FinishedRows | None,
        *,
        limit: int | None,
        retry_failed: bool = True,
        max_unreleased: int | None = None,
    ) -> None:
        self.documents = documents
        self.states = [DocumentState() for _ in documents]
        self.num_known = 0
        self.num_handed_out = 0
        self._spec = spec
        self._finished = finished
        self._limit = limit
        self._retry_failed = retry_failed
        self._max_unreleased = max_unreleased
        self._num_opened = 0
        self._num_planned = 0
        self._num_done_before = 0
        self._num_passed_over = 0
        self._num_released = 0
        self._rows = self.rows()
        self._waiting: deque[RowKey] = deque()

    @property
    def exhausted(self) -> bool:
        """Whether every row has been handed out."""
        return not self._waiting and self._all_handed_out

    @property
    def all_planned(self) -> bool:
        """Whether `num_planned` is final."""
        return self._all_handed_out or self.num_known == len(self.documents)

    @property
    def _all_handed_out(self) -> bool:
        if self.num_handed_out == self._limit:
            return True
        return self.num_known == len(self.documents) and self.num_handed_out == self._num_planned

    @property
    def num_planned(self) -> int:
        """How many rows there are, as far as is known."""
        return self._num_planned if self._limit is None else min(self._num_planned, self._limit)

    @property
    def num_done_before(self) -> int:
        """How many of the planned rows an earlier run has dealt with; with a limit, which may leave out some, only of
        the rows that were reached."""
        return self._num_done_before if self._limit is None else self._num_passed_over

    @property
    def num_rows_ahead(self) -> int:
        """How many known rows have not been handed out yet."""
        return self._num_planned - self.num_handed_out

    def rows(self) -> Iterator[RowKey | None]:
        """Yield every row of the output in input order, including those done before; None while the rows of the next
        document are not known."""
        remaining = self._limit
        for index, state in enumerate(self.states):
            while state.rows is None:
                yield None
            for page_index in state.rows[:remaining]:
                yield RowKey(index, page_index)
            if remaining is not None:
                remaining -= min(remaining, len(state.rows))
                if remaining == 0:
                    return

    def known_rows(self) -> Iterator[RowKey]:
        """The rows of the output that are known so far, including those done before.

        With a limit, only those before the first document that is not opened yet: later ones may be beyond the limit.
        """
        known = self.states if self._limit is None else takewhile(lambda state: state.rows is not None, self.states)
        keys = (RowKey(index, row) for index, state in enumerate(known) for row in state.rows or ())
        return islice(keys, self._limit)

    def documents_without_rows(self) -> list[tuple[Document, int]]:
        """The documents known to have none of the pages asked for, each with the number of pages that it has."""
        known = zip(self.documents, self.states, strict=True)
        return [
            (document, state.page_count or 0) for document, state in known if state.rows is not None and not state.rows
        ]

    def next_document(self) -> int | None:
        """The next document if it has to be opened to learn its pages; None if it does not, or if there is none left.

        Looks at one file per call, so that a million unchanged ones do not keep the caller from everything else: if
        `num_known` has grown, there may be more to come.
        """
        if self._all_handed_out or self._num_opened == len(self.documents):
            return None
        index = self._num_opened
        self._num_opened += 1
        document = self.documents[index]
        if document.problem is not None:
            self.cannot_open(index, document.problem)
            return None
        return None if self._unchanged(index) else index

    def opened(self, index: int, *, page_count: int, doc_id: str, size: int, mtime_ns: int) -> None:
        """Record that a document was opened. One without pages gets a row for the whole."""
        state = self.states[index]
        state.size, state.mtime_ns = size, mtime_ns
        self._plan(index, page_count, doc_id, self._settled(index))

    def cannot_open(self, index: int, problem: Failure, doc_id: str | None = None) -> None:
        """Record that a document cannot be opened: it gets one failed row for the whole."""
        state = self.states[index]
        state.problem = problem
        self._plan(index, None, doc_id, self._settled(index) if doc_id is not None else [])

    def next_row(self, must_wait: Callable[[RowKey], bool] = lambda key: False) -> RowKey | None:
        """The next row to begin; None while its document is not opened yet or too many rows wait, and at the end.

        must_wait: whether a row has to let others pass for now; asked again about each row that waits.
        """
        for key in self._waiting:
            if not must_wait(key):
                self._waiting.remove(key)
                return key
        while len(self._waiting) < _MAX_WAITING and (new := self._next_new_row()) is not None:
            if not must_wait(new):
                return new
            self._waiting.append(new)
        return None

    def _next_new_row(self) -> RowKey | None:
        """The next row that has never been handed out."""
        if self._max_unreleased is not None and self.num_handed_out - self._num_released >= self._max_unreleased:
            return None
        while (key := next(self._rows, None)) is not None:
            self.num_handed_out += 1
            if key.page_index not in self.states[key.document].done:
                return key
            self._num_passed_over += 1
        return None

    def give_back(self, key: RowKey) -> None:
        """Put a row that was handed out back in front of all others, to be begun again."""
        self._waiting.appendleft(key)

    def released(self) -> None:
        """Record that one more of the rows handed out has been passed on in input order."""
        self._num_released += 1

    def _unchanged(self, index: int) -> bool:
        """Plan a document from what an earlier run learnt about it, if its file has not been touched since."""
        state = self.states[index]
        try:
            file = os.stat(self.documents[index].path)
        except OSError:
            return False
        state.size, state.mtime_ns = file.st_size, file.st_mtime_ns
        settled = self._settled(index)
        of_this_file = [row for row in settled if (row.size, row.mtime_ns) == (state.size, state.mtime_ns)]
        if not of_this_file:
            return False
        # A document that could be opened once has pages, whatever happened in a later run.
        row = min(of_this_file, key=lambda row: (row.status == "failed", row.page_index is None))
        self._plan(index, row.page_count, row.doc_id, settled)
        return True

    def _plan(self, index: int, page_count: int | None, doc_id: str | None, settled: Sequence[IndexedRow]) -> None:
        """Plan the rows of a document. page_count: None if it cannot be opened."""
        state = self.states[index]
        state.page_count, state.doc_id = page_count, doc_id
        if not page_count:
            state.rows = [None]
        else:
            state.rows = self._spec.pages(page_count) if self._spec else range(page_count)
        state.done = frozenset(row.page_index for row in settled if row.doc_id == doc_id).intersection(state.rows)
        self._num_planned += len(state.rows)
        self._num_done_before += len(state.done)
        self.num_known += 1

    def _settled(self, index: int) -> list[IndexedRow]:
        """The rows of a document that need no further attempt."""
        rows = self._finished.rows(self.documents[index].source) if self._finished else ()
        return [row for row in rows if row.status != "failed" or not self._retry_failed]
