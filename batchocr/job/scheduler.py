"""Which row is begun next, and by which worker: `PageScheduler.pick` says how."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from weakref import WeakKeyDictionary

from batchocr.data import ErrorKind, Failure
from batchocr.job.attempts import Costs
from batchocr.job.intake import Intake
from batchocr.job.row_queue import RowKey
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Worker
from batchocr.storage.uris import is_uri

_MAX_QUEUED = 2
"""Tasks of one document that a worker has before it: while it works on one, it should not have to wait for the next."""

_MAX_FETCHED = 64
"""Objects that a worker fetched last, of which it may still hold a copy (`pages/documents`)."""

_NONE: Counter[Worker] = Counter()


class PageScheduler:
    """Picks the next row to begin, and a worker for it. Owns which pages of each document are in flight, and
    what each document has cost.

    pages_each: how many pages a document may have in flight while other documents wait.
    """

    def __init__(self, intake: Intake, pool: WorkerPool, *, pages_in_flight: int, page_timeout_s: float) -> None:
        self.pages_each = max(1, pages_in_flight // 2)
        self._intake = intake
        self._queue = intake.queue
        self._pool = pool
        self._costs = Costs(page_timeout_s)
        self._in_flight: dict[int, Counter[Worker]] = {}
        self._last_document: WeakKeyDictionary[Worker, int] = WeakKeyDictionary()
        self._fetched: WeakKeyDictionary[Worker, deque[int]] = WeakKeyDictionary()

    def pick(self) -> RowKey | None:
        """The next row to begin; None if there is none for now, and at the end.

        1. Rows whose worker was lost come first, then documents in input order, each from its first page on.
        2. While others wait, a document has at most half of the pages in flight and half of the workers.
        3. A row is picked if a worker can begin it soon, with nothing to do or little but the same document.
        4. Objects that only busy workers have fetched come after others.
        5. A document that has cost too much comes when nothing else is in flight, and one page at a time if it cost a
           worker.
        """
        among = None if self.has_worker_for(None) else self._begun_by_workers_with_room()
        elsewhere = self._fetched_by_busy_workers()
        key = (self._first(among, but=elsewhere) if elsewhere else None) or self._first(among)
        if key is None and not self._intake.more_to_come and all(map(self._costs.has_cost, self._in_flight)):
            key = self._first(among, postponed=True)
        if key is not None:
            self._queue.take(key)
        return key

    def _first(
        self, among: Collection[int] | None, *, but: Collection[int] = (), postponed: bool = False
    ) -> RowKey | None:
        candidates = self._queue.candidates(among, postponed=postponed)
        return next((key for key in candidates if key.document not in but and self._may_begin(key.document)), None)

    def _fetched_by_busy_workers(self) -> set[int]:
        """Objects that a worker with nothing to do would have to fetch again: other documents come first."""
        idle = self._free(None)
        busy = [worker for worker in self._pool.workers if worker not in idle] if idle else []
        elsewhere = {document for worker in busy for document in self._fetched.get(worker, ())}
        return elsewhere.difference(*(self._fetched.get(worker, ()) for worker in idle))

    def _begun_by_workers_with_room(self) -> set[int]:
        """The only documents of which a row may be begun while all workers are busy; thousands of others may be in
        line."""
        return {
            self._last_document[worker]
            for worker in self._pool.workers
            if worker in self._last_document and worker.backlog < _MAX_QUEUED
        }

    def has_worker_for(self, document: int | None) -> bool:
        """Whether a page of the document could be given to a worker now; None: of one that is yet to be opened."""
        return bool(self._free(document))

    def worker_for(self, document: int, *, fresh: bool) -> Worker:
        """The worker that holds the fewest tasks of other documents, of those that could begin with this one soon. One
        that has fetched it comes first.

        fresh: the one that has been given the fewest pages. There has to be one: see has_worker_for.
        """
        if fresh:
            return min(self._free(document), key=lambda worker: worker.num_pages)
        return min(self._free(document), key=lambda worker: self._preference(document, worker))

    def _free(self, document: int | None) -> Sequence[Worker]:
        """The workers that have nothing to do, or only little more than this very document.

        So no document has to wait until a worker is done with another, which may take up to --page-timeout. With one
        worker they all have to.
        """
        workers = self._pool.workers
        if len(workers) == 1 or document is None:
            return [worker for worker in workers if len(workers) == 1 or not worker.backlog]
        holders = self._in_flight.get(document, _NONE)
        if len(holders) >= len(workers) // 2 and not self._is_alone(document):
            workers = [worker for worker in workers if worker in holders]
        return [worker for worker in workers if worker.backlog < self._room(document, worker)]

    def _room(self, document: int, worker: Worker) -> int:
        return _MAX_QUEUED if self._last_document.get(worker) == document else 1

    def _preference(self, document: int, worker: Worker) -> tuple[bool, int, int]:
        own = self._in_flight.get(document, _NONE)[worker]
        return document not in self._fetched.get(worker, ()), len(worker.task_ids) - own, -own

    def begin(self, key: RowKey, worker: Worker) -> None:
        """Record that the worker was given the row."""
        self._last_document[worker] = key.document
        if is_uri(self._intake.documents[key.document].path):
            fetched = self._fetched.setdefault(worker, deque(maxlen=_MAX_FETCHED))
            if key.document not in fetched:
                fetched.append(key.document)
        if key.page_index is not None:
            self._in_flight.setdefault(key.document, Counter())[worker] += 1

    def end(self, key: RowKey, worker: Worker) -> None:
        """Record that the worker has finished the row, or was lost."""
        if key.page_index is None:
            return
        holders = self._in_flight[key.document]
        holders -= Counter((worker,))  # without those that hold none
        if not holders:
            del self._in_flight[key.document]

    def charge_step(self, document: int, seconds: float) -> None:
        """Count how long a step took."""
        self._costs.add_step(document, seconds, self._intake.states[document].bytes_per_page)
        self._queue.postpone(document, on=self._costs.has_cost(document))

    def charge_worker(self, document: int, error_kind: ErrorKind) -> None:
        """Count a worker that the document has cost."""
        self._costs.add_lost_worker(document, error_kind)
        self._queue.postpone(document, on=self._costs.has_cost(document))

    def given_up(self, document: int) -> Failure | None:
        """Why no more pages of the document are begun; None if it has not been given up."""
        return self._costs.given_up(document)

    def _may_begin(self, document: int) -> bool:
        """Whether a row of the document may be begun: it has to leave room for others, if there are any."""
        if self._costs.given_up(document) is not None:
            return True
        num_in_flight = self._in_flight[document].total() if document in self._in_flight else 0
        if num_in_flight and self._costs.must_go_alone(document):
            return False
        return (num_in_flight < self.pages_each or self._is_alone(document)) and self.has_worker_for(document)

    def _is_alone(self, document: int) -> bool:
        others_wait = self._intake.more_to_come or self._queue.others_wait(document)
        return not others_wait and self._in_flight.keys() <= {document}
