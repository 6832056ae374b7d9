"""Which document is opened next, and what is known of each: with its pages, its rows come into the queue."""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from batchocr.data import Document, ErrorKind, Failure, PageResult
from batchocr.job.copies import Copy, copied, serves
from batchocr.job.row_queue import RowKey, RowQueue
from batchocr.option_values import parse_page_spec
from batchocr.processes.messages import Opened
from batchocr.tables.index import IndexedRow
from batchocr.tables.journal import Journal

_LASTING: Final[frozenset[ErrorKind | None]] = frozenset({"damaged", "unsupported"})
"""What is wrong with a file as long as it is the same."""


def may_retry(error_kind: ErrorKind | None, retry_failed: bool | None) -> bool:
    """Whether a row that failed is begun again, if its file has not changed. retry_failed: as the option."""
    return error_kind not in _LASTING if retry_failed is None else retry_failed


@dataclass(slots=True)
class DocumentState:
    """What has been learnt about a document.

    size and mtime_ns: of the file when it was opened, or just before that failed. rows: the page indices that get a
    row, [None] for the document as a whole; None until that is known. done: those that an earlier run dealt with.
    ended: the pages that this run has dealt with, as bits, because a set would take more than all the rest. problem:
    why the document cannot be opened.
    """

    page_count: int | None = None
    doc_id: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    problem: Failure | None = None
    rows: Sequence[int | None] | None = None
    done: frozenset[int | None] = frozenset()
    ended: int = 0

    def has_ended(self, page_index: int) -> bool:
        """Whether this run or an earlier one has dealt with a page."""
        return page_index in self.done or bool(self.ended >> page_index & 1)

    @property
    def bytes_per_page(self) -> float:
        """Of the file; 0 until it has been opened."""
        return self.size / self.page_count if self.size and self.page_count else 0.0


class Intake:
    """Hands out documents to open, fills the queue of rows, and owns what is known about each document.

    Documents are opened ahead, in any order, and their rows can be handed out once they are known: with a limit, which
    has to mean the same rows in every run, or with max_unreleased, once those of all documents before are known, too.

    Of documents with the same bytes, one is read, and the others get copies of its rows: `copies` has those that can be
    made now. A document in `finished` serves too, even if its file is gone. Without `finished`, or with `reads_all`,
    every document is read.

    to_open_again: documents of which nothing was learnt when they were opened; they come before all others.
    pages: as the option. retry_failed: begin rows again that failed in an earlier run; None for those that may succeed
    now. max_unreleased: see RowQueue. num_done_before: how many of the rows in the queue an earlier run has dealt with.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        pages: str | None,
        finished: Journal | None,
        *,
        limit: int | None,
        retry_failed: bool | None = None,
        max_unreleased: int | None = None,
        reads_all: bool = False,
    ) -> None:
        self.documents = documents
        self.states = [DocumentState() for _ in documents]
        self.copies: deque[Copy] = deque()
        self._later_copies: defaultdict[RowKey, list[Copy]] = defaultdict(list)
        self.num_copied = 0
        self._copied_from = None if reads_all else finished
        self._earlier = _sources_by_content(self._copied_from)
        self._firsts: dict[str, int] = {}
        self.num_known = 0
        self.num_done_before = 0
        self._spec = parse_page_spec(pages) if pages else None
        self._finished = finished
        self._limit = limit
        self._retry_failed = retry_failed
        self._in_order = limit is not None or max_unreleased is not None
        self.queue = RowQueue(max_unreleased)
        self._num_opened = 0
        self.to_open_again: deque[int] = deque()
        self._num_planned = 0

    @property
    def exhausted(self) -> bool:
        """Whether every row has been handed out, and every copy made."""
        if self.queue.num_returned or self.copies or self._later_copies:
            return False
        num_handed_out = self.queue.num_handed_out
        is_known = self.num_known == len(self.documents)
        return num_handed_out == self._limit or (is_known and num_handed_out == self._num_planned)

    @property
    def all_planned(self) -> bool:
        """Whether `num_planned` is final."""
        return self.num_known == len(self.documents) or self.queue.num_rows == self._limit

    @property
    def more_to_come(self) -> bool:
        """Whether rows may soon be handed out of documents that are not known yet."""
        return not self.all_planned and self.queue.room_for_more

    @property
    def num_planned(self) -> int:
        """How many rows there are, as far as is known."""
        return self._num_planned if self._limit is None else min(self._num_planned, self._limit)

    @property
    def num_rows_ahead(self) -> int:
        """How many known rows have not been handed out yet, without those of postponed documents."""
        return self._num_planned - self.queue.num_rows + self.queue.num_rows_ready

    def has_ready(self, count: int, *, per_document: int) -> bool:
        """Whether so many rows can be handed out, if no document may have more than `per_document` of them; or whether
        there will be no more for now."""
        num_waiting = self.num_known - self.queue.num_documents
        num_ready = num_waiting + self.queue.num_ready(per_document=per_document, enough=count)
        return num_ready >= count or not self.more_to_come

    def rows(self) -> Iterator[RowKey | None]:
        """Yield every row of the output in input order, including those done before; None while the rows of the next
        document are not known, and for ever behind the limit."""
        for index in range(len(self.documents)):
            while (rows := self._rows_of(index)) is None:
                yield None
            yield from (RowKey(index, page_index) for page_index in rows)

    def planned(self) -> Iterator[Sequence[int | None]]:
        """The rows of each document that this run is to read or has found done, as far as they are known.

        With a limit, only those before the first document that is not opened yet: later ones may be beyond the limit.
        """
        return (self._rows_of(index) or () for index in range(len(self.documents)))

    def known_rows(self) -> Iterator[RowKey]:
        """The rows of `planned`, in input order."""
        return (RowKey(index, row) for index, rows in enumerate(self.planned()) for row in rows)

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
        if self.queue.num_rows == self._limit or self._num_opened == len(self.documents):
            return None
        index = self._num_opened
        self._num_opened += 1
        document = self.documents[index]
        if document.problem is not None:
            self.cannot_open(index, document.problem)
            return None
        return None if self._unchanged(index) else index

    def opened(self, index: int, file: Opened) -> None:
        """Record that a document was opened. One without pages gets a row for the whole."""
        state = self.states[index]
        state.size, state.mtime_ns = file.size, file.mtime_ns
        self._plan(index, file.page_count, file.doc_id, self._settled(self.documents[index].source))

    def cannot_open(self, index: int, problem: Failure, doc_id: str | None = None) -> None:
        """Record that a document cannot be opened: it gets one failed row for the whole, to be handed out at once,
        whatever the document has cost, so that a run that is stopped has it."""
        self.states[index].problem = problem
        self.queue.postpone(index, on=False)
        self._plan(index, None, doc_id, self._settled(self.documents[index].source) if doc_id is not None else [])

    def ended(self, key: RowKey) -> None:
        """Record that a row is finished, or about to be."""
        if key.page_index is not None:
            self.states[key.document].ended |= 1 << key.page_index
            self.copies += self._later_copies.pop(key, ())

    def next_copy(self) -> tuple[RowKey, PageResult | None]:
        """The next row of `copies`, as it is to be; None if it has to be read after all. Raises OutputError."""
        assert self._finished is not None
        key, first = self.copies.popleft()
        if not serves(self._finished.find(first, key.page_index), self.states[key.document].doc_id or ""):
            return key, None
        return key, copied(self._finished.read(first, key.page_index), self.documents[key.document].source)

    def _unchanged(self, index: int) -> bool:
        """Plan a document from what an earlier run learnt about it, if its file has not been touched since."""
        state, document = self.states[index], self.documents[index]
        if document.size is not None:
            state.size, state.mtime_ns = document.size, document.mtime_ns
        else:
            try:
                file = os.stat(document.path)
            except OSError:
                return False
            state.size, state.mtime_ns = file.st_size, file.st_mtime_ns
        settled = self._settled(self.documents[index].source)
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
            asked_for = self._spec.pages(page_count) if self._spec else range(page_count)
            state.rows = self.documents[index].chosen(asked_for)
        state.done = frozenset(row.page_index for row in settled if row.doc_id == doc_id).intersection(state.rows)
        self._num_planned += len(state.rows)
        self.num_known += 1
        if not self._in_order:
            self._queue_rows(index)
        while self._in_order and (following := self.queue.num_documents) < len(self.states):
            if self.states[following].rows is None or self.queue.num_rows == self._limit:
                break
            self._queue_rows(following)

    def _rows_of(self, index: int) -> Sequence[int | None] | None:
        """The rows of a document, as far as the limit allows; None while they cannot be known."""
        is_queued = not self._in_order or index < self.queue.num_documents
        return self.states[index].rows if is_queued else None

    def _queue_rows(self, index: int) -> None:
        """Have the rows of a document handed out. Those behind the limit are no rows of the output."""
        state = self.states[index]
        assert state.rows is not None
        if self._limit is not None:
            state.rows = state.rows[: self._limit - self.queue.num_rows]
        done = state.done.intersection(state.rows)
        self.num_done_before += len(done)
        self.queue.add(index, state.rows, done | self._copied_rows(index, state.rows))

    def _copied_rows(self, index: int, rows: Sequence[int | None]) -> frozenset[int | None]:
        """The rows of a document that are made from those of another, and not read."""
        state = self.states[index]
        if self._copied_from is None or state.doc_id is None or not state.page_count:
            return frozenset()
        earlier = self._earlier.get(state.doc_id)
        settled = {row.page_index for row in self._settled(earlier) if serves(row, state.doc_id)} if earlier else ()
        first = self._firsts.setdefault(state.doc_id, index)
        read_first = () if first == index else self.states[first].rows or ()
        same_pages = self.states[first].page_count == state.page_count
        copied = set()
        for page in rows:
            key = RowKey(index, page)
            if page is None or page in state.done:
                continue
            if earlier and page in settled:
                self.copies.append(Copy(key, earlier))
            elif same_pages and page in read_first:
                is_ready = self.states[first].has_ended(page)
                copies = self.copies if is_ready else self._later_copies[RowKey(first, page)]
                copies.append(Copy(key, self.documents[first].source))
            else:
                continue
            copied.add(page)
        self.num_copied += bool(copied)
        return frozenset(copied)

    def _settled(self, source: str) -> list[IndexedRow]:
        """The rows of a document that need no further attempt."""
        rows = self._finished.rows(source) if self._finished else ()
        return [row for row in rows if row.status != "failed" or not may_retry(row.error_kind, self._retry_failed)]


def _sources_by_content(finished: Journal | None) -> dict[str, str]:
    """A document for each `doc_id` of which pages were read."""
    sources: dict[str, str] = {}
    for source in finished.sources() if finished else ():
        for row in finished.rows(source) if finished else ():
            if row.doc_id is not None and row.page_index is not None:
                sources.setdefault(row.doc_id, source)
    return sources
