"""The run's loop: takes documents to workers, their questions to engines, and rows to the caller.

It runs on the caller's thread and only routes: the workers do the work on pages, the engines the work on the devices.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from batchocr.data import Failure, PageResult
from batchocr.errors import BatchOcrError
from batchocr.job.attempts import Attempts
from batchocr.job.intake import Intake
from batchocr.job.progress import event
from batchocr.job.row_queue import RowKey
from batchocr.job.scheduler import PageScheduler
from batchocr.job.stop import StopSwitch
from batchocr.processes.counts import HostCounts
from batchocr.processes.messages import Began, Completions, Ended, Failed, Finished, OpenDocument, Opened, ReadPage
from batchocr.processes.pool import WorkerPool
from batchocr.processes.questions import Questions
from batchocr.processes.worker import Arrived, Asked, Loss, Worker
from batchocr.storage.uris import is_uri

logger = logging.getLogger(__name__)

_TICK_S = 0.5
_ROWS_AHEAD = 2000
"""Documents are opened up to this many rows ahead: it costs little, and anyone watching sees the total sooner."""
_FETCHED_AHEAD = 4
"""Rows for each worker, if documents are fetched: a worker keeps only a few copies of large ones."""
_MOST_CLAIMED_PAGES = 1000
"""Far more than the pages that a document may claim and not have; of those that it has, each takes some bytes."""
_BEGUN_AT_ONCE = 100
"""How much is begun between two checks for messages and for a stop: a million files may be unchanged in a row."""
_TASK_IDS = count(1)
"""Of all runs of this process: an engine may still answer what an earlier one asked."""


@dataclass(slots=True, eq=False)
class _Task:
    """What a worker was asked to do: open a document, or read a page.

    round: its last.
    """

    key: RowKey
    worker: Worker
    round: int = 0

    @property
    def opening(self) -> bool:
        return self.key.page_index is None


class Pipeline:
    """Reads what an intake hands out. Owns the tasks that the workers hold."""

    def __init__(
        self,
        intake: Intake,
        pool: WorkerPool,
        counter: HostCounts,
        *,
        pages_in_flight: int,
        page_timeout_s: float,
    ) -> None:
        self._intake = intake
        self._pool = pool
        self._engines: Questions  # as `results` is given them: until then nothing is asked
        self._counter = counter
        self._pages_in_flight = pages_in_flight
        self._fetches = any(is_uri(document.path) for document in intake.documents)
        self._page_timeout_s = page_timeout_s
        self._tasks: dict[int, _Task] = {}
        self._attempts = Attempts()
        self._scheduler = PageScheduler(intake, pool, pages_in_flight=pages_in_flight, page_timeout_s=page_timeout_s)
        self._finished: deque[tuple[RowKey, PageResult]] = deque()
        self._num_opening = 0

    def is_all_done(self, timeout_s: float) -> bool:
        """Whether earlier runs have dealt with every row, as far as that turns out within the time. What is learnt on
        the way counts, and a document that is being opened when the time is over goes on being opened."""
        deadline_s = time.monotonic() + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0 and next(self._intake.queue.candidates(), None) is None:
            if self._intake.exhausted:
                return True
            num_known = self._intake.num_known
            if (index := self._next_document(full=True)) is not None:
                self._begin_task(RowKey(index, None))
            elif self._intake.num_known == num_known:
                if not self._tasks:
                    return False
                self._take(self._pool.wait(min(left_s, _TICK_S)))
        return False

    def results(
        self, engines: Questions, stop: StopSwitch, tick: Callable[[], None]
    ) -> Iterator[tuple[RowKey, PageResult]]:
        """Read everything; yields rows as they are finished. On a stop, finishes what is in flight and ends; whatever
        takes longer than the grace period is left for the next run.

        tick: called at least about twice a second, for progress. Raises EngineError if no engine is left, BatchOcrError
        if no worker can be started.
        """
        self._engines = engines
        while True:
            more = stop.reason is None and all(self._begin() for _ in range(_BEGUN_AT_ONCE))
            if self._finished:
                yield from self._take_finished()
                more = True  # that may have released rows, so that others can begin
            if not stop.grace_is_over:
                more = self._make_copies() or more
            # Documents that are still being opened are of no use any more.
            is_over = stop.reason is not None or self._intake.exhausted
            if len(self._tasks) == self._num_opening and is_over and not self._finished:
                return
            try:
                self._take(self._pool.wait(0 if more else _TICK_S, beside=engines.channels))
                self._take_answers()
            except BatchOcrError:
                yield from self._take_finished()
                raise
            tick()
            if stop.grace_is_over and not self._finished:
                self._abandon()
                return

    def _take(self, said: Sequence[tuple[Worker, Arrived]]) -> None:
        """Do what follows from what workers have said, and from the loss of some."""
        for _, message in said:
            self._handle(message)
        # No row is yielded in between: while the caller takes its time, workers would seem to be late.
        for loss in self._pool.replace_lost(self._page_timeout_s):
            self._take_back(loss)
        self._pool.recycle_workers()

    def _make_copies(self) -> bool:
        """Emit some rows that need no reading: those of which they are made have been stored by now. Returns whether
        there were any."""
        for _ in range(num_made := min(len(self._intake.copies), _BEGUN_AT_ONCE)):
            key, row = self._intake.next_copy()
            if row is None:
                self._intake.queue.give_back(key)
            else:
                self._emit(key, row)
        return num_made > 0

    def _take_finished(self) -> Iterator[tuple[RowKey, PageResult]]:
        while self._finished:
            yield self._finished.popleft()

    def _abandon(self) -> None:
        """Leave what is in flight unread."""
        logger.warning("%d pages in flight were not finished in time: the next run begins them again", len(self._tasks))
        for task in self._tasks.values():
            if not task.opening:
                self._intake.queue.give_back(task.key)

    # Beginning

    def _begin(self) -> bool:
        """Open a document a little ahead, or begin a row; returns False if nothing may be begun now."""
        num_reading = len(self._tasks) - self._num_opening
        full = num_reading >= self._pages_in_flight
        num_known = self._intake.num_known
        index = self._next_document(full=full)
        if index is not None:
            self._begin_task(RowKey(index, None))
            return True
        key = None if full else self._scheduler.pick()
        if key is None:
            return self._intake.num_known > num_known
        if key.page_index is None:
            self._finish_document(key)
        elif (given_up := self._scheduler.given_up(key.document)) is not None:
            self._fail(key, given_up)
        else:
            self._begin_task(key)
        return True

    def _next_document(self, *, full: bool) -> int | None:
        """The next document to open, if too few known rows follow, or only rows of a document that has its share in
        flight; and if a worker has none to open. full: so many pages are being read that no row may be begun."""
        if self._num_opening >= len(self._pool.workers) or not self._scheduler.has_worker_for(None):
            return None
        if self._intake.to_open_again:
            return self._intake.to_open_again.popleft()
        enough, rows_ahead = self._pages_in_flight, _ROWS_AHEAD if full else self._pages_in_flight
        if self._fetches:
            enough = rows_ahead = min(enough, _FETCHED_AHEAD * len(self._pool.workers))
        if self._intake.num_rows_ahead + self._num_opening >= rows_ahead:
            enough -= self._num_opening
            if self._intake.has_ready(enough, per_document=self._scheduler.pages_each):
                return None
        return self._intake.next_document()

    def _begin_task(self, key: RowKey) -> None:
        """Give a worker the task."""
        self._attempts.begin(key)
        worker = self._scheduler.worker_for(key.document, fresh=self._attempts.has_cost_a_worker(key))
        task_id = next(_TASK_IDS)
        self._tasks[task_id] = task = _Task(key, worker)
        self._scheduler.begin(key, worker)
        self._num_opening += task.opening
        path, file = self._intake.documents[key.document].path, self._intake.states[key.document]
        if key.page_index is None:
            worker.send(OpenDocument(task_id, path))
        else:
            worker.send(ReadPage(task_id, path, key.page_index, file.size, file.mtime_ns))

    # Routing

    def _handle(self, message: Arrived) -> None:
        match message:
            case Began():
                pass
            case Ended():
                self._counter.add(message.activity, message.seconds)
                self._scheduler.charge_step(self._tasks[message.task_id].key.document, message.seconds)
            case Asked():
                self._ask(message)
            case Opened():
                self._take_opened(message)
            case Finished():
                self._finish_page(self._end_task(message.task_id).key, message)
            case Failed(failure=Failure(kind="out_of_memory")):
                self._try_afresh(message)
            case Failed():
                self._fail(self._end_task(message.task_id).key, message.failure, message.doc_id)

    def _take_opened(self, message: Opened) -> None:
        """Plan the rows of a document. A worker that lies about their number costs one row."""
        key = self._end_task(message.task_id).key
        self._attempts.end(key)
        document = self._intake.documents[key.document]
        try:
            size = os.path.getsize(document.path) if document.size is None else max(document.size, message.size)
        except OSError:  # it has just gone: its pages will say so
            size = message.size
        most_pages = size + _MOST_CLAIMED_PAGES
        if message.page_count > most_pages:
            claim = f"its worker process claims {message.page_count:,} pages, more than the file has bytes"
            self._intake.cannot_open(key.document, Failure("crashed", claim))
            return
        self._intake.opened(key.document, message)

    def _ask(self, message: Asked) -> None:
        self._tasks[message.task_id].round = message.batch.message.round
        self._engines.ask(message.task_id, message.batch)

    def _take_answers(self) -> None:
        for task_id, completions in self._engines.take_answers():
            task = self._tasks.get(task_id)
            if task is None:  # its worker has been lost in the meantime
                continue
            self._counter.blocks += len(completions) if task.round > 0 else 0  # the first round asks about the page
            task.worker.send(Completions(task_id, completions))

    def _take_back(self, loss: Loss) -> None:
        """Begin a lost worker's tasks again. The one it was working on is begun only once more, or a few times if the
        worker was killed; if it was working on none, all are begun a few times. Tasks that merely waited, and those of
        a worker killed before it had said a word, are always begun again."""
        if loss.doing is not None:
            self._counter.add(loss.doing.activity, loss.busy_s, items=0)
        untouched = loss.killed and not loss.worker.has_spoken
        # give_back puts each row in front of the others: starting with the last keeps their order.
        for task_id in sorted(loss.task_ids, reverse=True):
            key = self._end_task(task_id).key
            worked_on = loss.doing is not None and loss.doing.task_id == task_id
            if not untouched and (worked_on or loss.doing is None):
                self._attempts.add_loss(key, to_blame=worked_on and not loss.killed)
            # Memory may have been taken by others; but a document that is there each time is not to cost any more.
            if worked_on and not (loss.killed and loss.failure.kind == "crashed"):
                self._scheduler.charge_worker(key.document, loss.failure.kind)
            self._begin_again(key, loss.failure, None)
        logger.warning(
            "a worker was lost, and replaced: %s",
            loss.failure.message,
            extra=event("worker_lost", error_kind=loss.failure.kind, error_message=loss.failure.message),
        )

    def _try_afresh(self, failed: Failed) -> None:
        """Give a task that ran out of memory one more attempt, in a worker that holds nothing else yet."""
        task = self._end_task(failed.task_id)
        self._attempts.add_loss(task.key, to_blame=True)
        self._scheduler.charge_worker(task.key.document, failed.failure.kind)
        self._pool.retire(task.worker)
        self._begin_again(task.key, failed.failure, failed.doc_id)

    def _begin_again(self, key: RowKey, failure: Failure, doc_id: str | None) -> None:
        """Put a row in front of all others, to be begun again, or fail it if it has been begun often enough."""
        is_given_up = self._attempts.has_cost_a_worker(key) and self._scheduler.given_up(key.document) is not None
        if self._attempts.exhausted(key) or is_given_up:
            self._fail(key, failure, doc_id)
        elif key.page_index is None:
            self._intake.to_open_again.appendleft(key.document)
        else:
            self._intake.queue.give_back(key)

    # Ending

    def _end_task(self, task_id: int) -> _Task:
        task = self._tasks.pop(task_id)
        self._num_opening -= task.opening
        self._scheduler.end(task.key, task.worker)
        return task

    def _finish_page(self, key: RowKey, message: Finished) -> None:
        reading = message.reading
        result = PageResult(
            source=self._intake.documents[key.document].source,
            page_index=key.page_index,
            status="degraded" if reading.degraded else "ok",
            width=message.width,
            height=message.height,
            dpi=message.dpi,
            error_message=reading.degraded,
            markdown=reading.markdown,
            blocks=reading.blocks,
            image_tokens=reading.image_tokens,
            output_tokens=reading.output_tokens,
            ink_outside=reading.ink_outside,
            text_layer_agreement=reading.text_layer_agreement,
            layout_confidence=reading.layout_confidence,
            layout_min_logprob=reading.layout_min_logprob,
        )
        self._emit(key, result)

    def _finish_document(self, key: RowKey) -> None:
        """Emit the row of a document as a whole: it cannot be opened, or has no pages."""
        problem = self._intake.states[key.document].problem
        if problem is None:
            self._emit(key, PageResult(self._intake.documents[key.document].source, None, "skipped"))
        else:
            self._emit_failed(key, problem)

    def _fail(self, key: RowKey, failure: Failure, doc_id: str | None = None) -> None:
        """Fail a page; or, if it is a document that was to be opened, give it one row for the whole."""
        if key.page_index is None:
            self._intake.cannot_open(key.document, failure, doc_id)
        else:
            self._emit_failed(key, failure)

    def _emit_failed(self, key: RowKey, failure: Failure) -> None:
        source = self._intake.documents[key.document].source
        result = PageResult(source, key.page_index, "failed", error_kind=failure.kind, error_message=failure.message)
        self._emit(key, result)

    def _emit(self, key: RowKey, result: PageResult) -> None:
        state = self._intake.states[key.document]
        attempts = self._attempts.end(key)
        result = replace(result, doc_id=state.doc_id, page_count=state.page_count, attempts=attempts)
        self._finished.append((key, result))
        self._intake.ended(key)
