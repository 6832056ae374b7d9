"""What a worker does next: `PageScheduler.next_for` says how that is decided."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from typing import Final
from weakref import WeakKeyDictionary

from batchocr.data import ErrorKind
from batchocr.job.document_run import ALONE_FROM, MAX_FAILURES, MAX_LOSSES, Attempts, Blame, DocumentRun, RowKey
from batchocr.job.row_plan import RowPlan
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Worker
from batchocr.storage.members import is_copied

_ROWS_AHEAD: Final = 2000
"""How many rows ahead documents are opened: it costs little, and anyone watching sees the total sooner."""
_AHEAD_FOR_EACH: Final = 4
"""How many rows ahead documents are opened for each worker if they are fetched: a worker keeps only a few copies of
large ones."""


class PageScheduler:
    """Gives documents to open and rows to read to workers that ask. Owns the documents that are being read."""

    def __init__(self, plan: RowPlan, pool: WorkerPool, page_timeout_s: float) -> None:
        self.pages_in_flight = _AHEAD_FOR_EACH * len(pool.workers)
        """How many pages may be read at once: a guess, until the model is loaded for the first of them."""
        self.num_in_flight = 0
        """How many pages are being read."""
        self._plan = plan
        self._pool = pool
        self._page_timeout_s = page_timeout_s
        fetches = any(is_copied(document.path) for document in plan.documents)
        self._rows_ahead = _AHEAD_FOR_EACH * len(pool.workers) if fetches else _ROWS_AHEAD
        self._runs: dict[int, DocumentRun] = {}
        self._lines: dict[bool, list[int]] = {False: [], True: []}
        """The documents with rows that were never begun, in input order: by whether they have cost something."""
        self._again: deque[RowKey] = deque()
        """The rows to be begun again, before all others."""
        self._given: WeakKeyDictionary[Worker, dict[int, None]] = WeakKeyDictionary()
        """The documents of which each worker was given something, the last one at the end."""

    # What is next

    def next_for(self, worker: Worker) -> RowKey | None:
        """What the worker is to begin: a row to read, a document to open, or nothing for now.

        1. Rows whose worker was lost come first, then documents in input order, each from its first page on. An idle
           worker, which has nothing to do now though it may hold pages that wait for answers, may begin any of them. A
           busy one goes on with its last document, so that none waits for another's slow page.
        2. While others wait, a document has at most half of the pages in flight and half of the workers.
        3. An object, or a document within a file, is read by a worker that has a copy of it; if these are busy, by
           another, after other documents.
        4. A document that has cost something comes when nothing else is left; once it has cost a worker, one page at a
           time.
        5. An idle worker without a row to read opens the next document.

        Of idle workers, the one that holds the least and is the freshest asks first (`WorkerPool.with_room`).
        """
        key = None
        if self.num_in_flight < self.pages_in_flight:
            key = self._next_row(worker, costly=False)
            if key is None and not worker.backlog and self._has_only_costly():
                key = self._next_row(worker, costly=True)
        if key is None and not worker.backlog:
            key = self._next_to_open()
        if key is not None and key in self._again:
            self._again.remove(key)
        elif key is not None:
            self._go_on(self.run_of(key.document))
        return key

    def _next_to_open(self) -> RowKey | None:
        again = next((key for key in self._again if key.page_index is None), None)
        if again is not None or self._is_enough_known():
            return again
        index = self._plan.next_document()
        return None if index is None else RowKey(index, None)

    def _has_rows_ahead(self) -> bool:
        """Whether so many rows wait that no document is opened for more; or whether there are no other documents."""
        return not self._plan.more_to_come or self._plan.num_left - self.num_in_flight >= self._rows_ahead

    def _is_enough_known(self) -> bool:
        """Whether opening further documents is of no use for now."""
        if self.num_in_flight < self.pages_in_flight and self._plan.more_to_come:
            return self._plan.num_ahead >= min(self._rows_ahead, self.pages_in_flight)
        return self._has_rows_ahead()

    def _next_row(self, worker: Worker, *, costly: bool) -> RowKey | None:
        only = next(reversed(self._given[worker])) if worker.backlog else None
        elsewhere = None
        for key in self._candidates(costly=costly, only=only):
            run = self.run_of(key.document)
            if only not in (None, run.index) or not self._may_begin(run, worker):
                continue
            fetched_by = self._fetched_by(run)
            if not fetched_by or worker in fetched_by:
                return key
            if all(other.backlog for other in fetched_by):
                elsewhere = elsewhere or key
        return elsewhere if self._has_rows_ahead() else None

    def _candidates(self, *, costly: bool, only: int | None = None) -> Iterator[RowKey]:
        """The rows that may be begun, of documents that have cost something, or of all others: first the rows to be
        begun again, then the next row of each document.

        only: of this document, besides those to be begun again.
        """
        while self._plan.ready:
            known = self.run_of(self._plan.ready.popleft())
            known.following = self._plan.to_be_read(known.index)
            self._go_on(known)
        for key in self._again:
            if key.page_index is not None and self.run_of(key.document).is_costly is costly:
                yield key
        line = self._lines[costly]
        for index in line if only is None else [only]:
            run = self._runs.get(index)
            if run is None or run.next is None or run.line is not line or not self._plan.is_in_window(run.next):
                return
            yield run.next

    def _may_begin(self, run: DocumentRun, worker: Worker) -> bool:
        """Whether the worker may begin a page of the document: it has to leave room for others, if there are any."""
        if run.in_flight and run.cost >= ALONE_FROM:
            return False
        workers = set(run.in_flight.values())
        has_room = worker in workers or len(workers) < max(1, len(self._pool.workers) // 2)
        return (has_room and len(run.in_flight) < max(1, self.pages_in_flight // 2)) or self._is_alone(run)

    def _is_alone(self, run: DocumentRun) -> bool:
        """Whether no other document is being read, or waits for it."""
        has_others = self._plan.more_to_come or self.num_in_flight > len(run.in_flight)
        return not has_others and all(key.document == run.index for key in self._candidates(costly=run.is_costly))

    def _has_only_costly(self) -> bool:
        """Whether nothing else is being read, or may still come."""
        return not self._plan.more_to_come and all(run.is_costly for run in self._runs.values() if run.in_flight)

    def _fetched_by(self, run: DocumentRun) -> list[Worker]:
        """The workers that have fetched the document; none if it is a file."""
        if not is_copied(self._plan.documents[run.index].path):
            return []
        return [worker for worker in self._pool.workers if run.index in self._given.get(worker, ())]

    # What becomes of it

    def run_of(self, document: int) -> DocumentRun:
        """What becomes of a document that is being opened or has rows; begun anew if it was forgotten."""
        if document not in self._runs:
            self._runs[document] = DocumentRun(document, self._plan.states[document], self._page_timeout_s)
        return self._runs[document]

    def charge_step(self, document: int, seconds: float) -> None:
        """Count how long a step took."""
        run = self.run_of(document)
        run.charge_step(seconds)
        self._place(run)

    def begin(self, key: RowKey, worker: Worker) -> None:
        """Record that the worker reads the row, or opens the document."""
        run = self.run_of(key.document)
        run.attempts.setdefault(key.page_index, Attempts()).begun += 1
        if key.page_index is not None:
            self.num_in_flight += 1
            run.in_flight[key.page_index] = worker
        given = self._given.setdefault(worker, {})
        given[key.document] = given.pop(key.document, None)  # the last one is at the end

    def release(self, key: RowKey) -> None:
        """Record that no worker reads the row, or opens the document, any more."""
        if key.page_index is not None:
            self.num_in_flight -= 1
            del self.run_of(key.document).in_flight[key.page_index]

    def lost(self, key: RowKey, blame: Blame, cost: ErrorKind | None) -> bool:
        """Have what a lost worker held begun again, before all others; False if it has been begun often enough.

        blame: whether it is the cause. cost: as what the worker is counted among the costs of the document, if it is.
        """
        run = self.run_of(key.document)
        tried = run.attempts[key.page_index]
        tried.losses += blame != "none"
        tried.failures += blame == "certain"
        if cost is not None:
            run.charge(1.0, cost)
            self._place(run)
        is_over = tried.failures >= MAX_FAILURES or tried.losses >= MAX_LOSSES
        if is_over or (tried.failures and run.given_up is not None):
            return False
        self._again.appendleft(key)
        return True

    def read(self, key: RowKey) -> None:
        """Have a row read that was to be copied."""
        self._again.append(key)

    def end(self, key: RowKey) -> int:
        """Record that a row has ended, or that a document is open; returns how often it was begun."""
        run = self.run_of(key.document)
        begun = run.attempts.pop(key.page_index, Attempts()).begun
        self._place(run)
        return begun

    def _go_on(self, run: DocumentRun) -> None:
        """Leave the next row of the document behind."""
        run.next = next(run.following, None)
        self._place(run)

    def _place(self, run: DocumentRun) -> None:
        """Have the document wait in its line as long as it has a row that was never begun; forget a document of which
        nothing is left. A document that has cost something may still get its rows."""
        if run.line is not None:
            run.line.remove(run.index)
        run.line = None if run.next is None else self._lines[run.is_costly]
        if run.line is not None:
            insort(run.line, run.index)
        elif not run.attempts and not run.cost:
            del self._runs[run.index]
