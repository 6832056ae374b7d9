"""The run's loop: takes documents to workers, their questions to engines, and rows to the caller.

It runs on the caller's thread and only routes: the workers do the work on pages, the engines the work on the devices.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

from batchocr.data import ErrorKind, Failure, PageResult, Status, counted
from batchocr.errors import BatchOcrError
from batchocr.job.document_run import Blame, RowKey
from batchocr.job.progress import event
from batchocr.job.row_plan import RowPlan
from batchocr.job.scheduler import PageScheduler
from batchocr.job.stop import StopSwitch
from batchocr.processes.counts import Counts
from batchocr.processes.messages import Completions, Ended, Failed, Finished, OpenDocument, Opened, ReadPage
from batchocr.processes.pool import WorkerPool
from batchocr.processes.questions import Questions
from batchocr.processes.worker import Arrived, Asked, Loss, Worker

logger = logging.getLogger(__name__)

_DOUBTED = "%s does not fit its ETag, nor may others, which are not named: check the store (SSE-KMS and SSE-C do this)"

_TICK_S = 0.5
_COPIED_AT_ONCE = 100
"""How many rows are copied between two checks for messages and for a stop."""


@dataclass(slots=True, eq=False)
class _Task:
    """What a worker was asked to do: read a page, or without `page_index` open a document."""

    key: RowKey
    worker: Worker
    round: int = 0
    """The round of the questions that the task asked last."""


Load = Callable[[], tuple[Questions, int]]
"""A function that loads the model on all engines, if that is not done yet. Returns what passes questions on to them,
and how many pages to have in flight for them."""


class Pipeline:
    """Reads what a plan says. Owns the tasks that the workers hold.

    load: called when the first page is to be read. page_timeout_s: how long a step of a worker may take.
    """

    def __init__(self, plan: RowPlan, pool: WorkerPool, counter: Counts, load: Load, page_timeout_s: float) -> None:
        self._plan = plan
        self._pool = pool
        self._counter = counter
        self._load = load
        self._page_timeout_s = page_timeout_s
        self._questions: Questions | None = None
        self._scheduler = PageScheduler(plan, pool, page_timeout_s)
        self._tasks: dict[int, _Task] = {}
        self._has_doubted = False
        self._task_ids = count(1)
        self._finished: deque[tuple[RowKey, PageResult]] = deque()

    def results(self, stop: StopSwitch, tick: Callable[[], None]) -> Iterator[tuple[RowKey, PageResult]]:
        """Read everything; yields rows as they are finished. On a stop, finishes what is in flight and ends; whatever
        takes longer than the grace period is left for the next run. The caller stores each row before it asks for the
        next one: copies are made of what is stored.

        tick: called at least about twice a second, for progress. Raises what `load` raises; EngineError if no engine is
        left, BatchOcrError if no worker can be started.
        """
        try:
            while True:
                more = stop.reason is None and self._give_work()
                while self._finished:
                    yield self._finished.popleft()
                    more = True  # that may have made room in the window, so that others can begin
                if not stop.grace_is_over:
                    more = self._make_copies() or more
                # Documents that are still being opened are of no use any more.
                is_over = self._plan.is_complete or (stop.reason is not None and not self._scheduler.num_in_flight)
                if is_over and not self._finished:
                    return
                self._listen(0 if more else _TICK_S)
                tick()
                if stop.grace_is_over and not self._finished:
                    left = counted(self._scheduler.num_in_flight, "page")
                    logger.warning("not finished in time: %s, which the next run begins again", left)
                    return
        except BatchOcrError:
            while self._finished:
                yield self._finished.popleft()
            raise

    # Beginning

    def _give_work(self) -> bool:
        """Give each worker that has room one thing to do; returns whether there may be more at once."""
        num_known = self._plan.num_known
        is_given = False
        for worker in self._pool.with_room():
            if (key := self._scheduler.next_for(worker)) is not None:
                self._begin(key, worker)
                is_given = True
        return is_given or self._plan.num_known > num_known

    def _begin(self, key: RowKey, worker: Worker) -> None:
        """Have the worker open the document or read the page; or end the row if there is nothing to read."""
        document, state = self._plan.documents[key.document], self._plan.states[key.document]
        failure = state.problem or self._scheduler.run_of(key.document).given_up
        if failure is not None:
            self._fail(key, failure)
        elif state.page_count == 0:
            self._emit(key, PageResult(document.source, None, "skipped"))
        else:
            task_id = next(self._task_ids)
            self._tasks[task_id] = _Task(key, worker)
            self._scheduler.begin(key, worker)
            if key.page_index is None:
                worker.send(OpenDocument(task_id, document.path))
                return
            if self._questions is None:
                self._questions, self._scheduler.pages_in_flight = self._load()
            worker.send(ReadPage(task_id, document.path, key.page_index, state.size, state.mtime_ns))

    def _make_copies(self) -> bool:
        """Emit some rows that are copied. The rows of which they are made were yielded before, and are in the journal:
        the caller has stored each row before it asks for the next. Returns whether there were any."""
        copies = self._plan.copies
        for _ in range(num_made := min(len(copies.ready), _COPIED_AT_ONCE)):
            key, row = copies.make_next()
            if row is None:
                self._scheduler.read(key)
            else:
                self._emit(key, row)
        return num_made > 0

    # Routing

    def _listen(self, timeout_s: float) -> None:
        """Wait for what workers and engines say, and do what follows from it, and from the loss of workers."""
        for _, message in self._pool.wait(timeout_s, beside=self._questions.channels if self._questions else ()):
            self._handle(message)
        # No row is yielded in between: while the caller takes its time, workers would seem to be late.
        for loss in self._pool.replace_lost(self._page_timeout_s):
            self._take_back(loss)
        self._pool.recycle_workers()
        for task_id, completions in self._questions.take_answers() if self._questions else ():
            if (task := self._tasks.get(task_id)) is not None:  # else its worker has been lost in the meantime
                self._counter.blocks += len(completions) if task.round > 0 else 0  # the first round asks about the page
                task.worker.send(Completions(task_id, completions))

    def _handle(self, message: Arrived) -> None:
        match message:
            case Ended():
                self._counter.add(message.activity, message.seconds)
                self._scheduler.charge_step(self._tasks[message.task_id].key.document, message.seconds)
            case Asked():
                assert self._questions is not None
                self._tasks[message.task_id].round = message.batch.message.round
                self._questions.ask(message.task_id, message.batch)
            case Opened():
                key = self._end_task(message.task_id).key
                self._plan.opened(key.document, message)
                self._scheduler.end(key)
                if message.doubted and not self._has_doubted:
                    self._has_doubted = True
                    logger.warning(_DOUBTED, self._plan.documents[key.document].source)
            case Finished():
                key = self._end_task(message.task_id).key
                source = self._plan.documents[key.document].source
                self._emit(key, PageResult.of(source, key.page_index, message.reading))
            case Failed(failure=failure):
                task = self._end_task(message.task_id)
                if failure.kind == "out_of_memory":  # it is tried once more, in a worker that holds nothing else yet
                    self._pool.retire(task.worker)
                    self._lose(task.key, failure, "certain", failure.kind, message.doc_id)
                else:
                    self._fail(task.key, failure, message.doc_id)

    # What is lost

    def _take_back(self, loss: Loss) -> None:
        """Begin a lost worker's tasks again. The task it was working on is begun only once more, or a few times if the
        worker was killed; if it was working on none, all are begun a few times. Tasks that merely waited, and the tasks
        of a worker killed before it had said a word, are always begun again."""
        doing, killed, failure = loss.doing, loss.killed, loss.failure
        if doing is not None:
            self._counter.add(doing.activity, loss.busy_s, items=0)
        of_others: Blame = "possible" if doing is None and (loss.worker.has_spoken or not killed) else "none"
        of_doing: Blame = "possible" if killed else "certain"
        # Memory may have been taken by others; but a document that is there each time is not to cost any more.
        cost = None if killed and failure.kind == "crashed" else failure.kind
        # Each row comes in front of the others: starting with the last keeps their order.
        for task_id in sorted(loss.task_ids, reverse=True):
            key = self._end_task(task_id).key
            if doing is not None and doing.task_id == task_id:
                self._lose(key, failure, of_doing, cost)
            else:
                self._lose(key, failure, of_others)
        said = event("worker_lost", error_kind=failure.kind, error_message=failure.message)
        logger.warning("a worker was lost, and replaced: %s", failure.message, extra=said)

    def _lose(
        self, key: RowKey, failure: Failure, blame: Blame, cost: ErrorKind | None = None, doc_id: str | None = None
    ) -> None:
        """Have a row begun again before all others, or fail the row if it has been begun often enough."""
        if not self._scheduler.lost(key, blame, cost):
            self._fail(key, failure, doc_id)

    # Ending

    def _end_task(self, task_id: int) -> _Task:
        task = self._tasks.pop(task_id)
        self._scheduler.release(task.key)
        return task

    def _fail(self, key: RowKey, failure: Failure, doc_id: str | None = None) -> None:
        """Fail a row; or, if it is a document that was to be opened, give it one row for the whole."""
        if self._plan.states[key.document].rows is None:
            self._plan.cannot_open(key.document, failure, doc_id)
            return
        source = self._plan.documents[key.document].source
        status: Status = "skipped" if failure.kind == "absent" else "failed"
        row = PageResult(source, key.page_index, status, error_kind=failure.kind, error_message=failure.message)
        self._emit(key, row)

    def _emit(self, key: RowKey, result: PageResult) -> None:
        state = self._plan.states[key.document]
        attempts = self._scheduler.end(key)
        size, mtime_ns = (state.size, state.mtime_ns) if not self._plan.documents[key.document].held else (None, None)
        result = replace(result, doc_id=state.doc_id, page_count=state.page_count, attempts=attempts)
        result = replace(result, file_bytes=size, file_mtime_ns=mtime_ns)
        self._finished.append((key, result))
        self._plan.ended(key)
