"""The worker processes: started, listened to, watched, replaced. Knows nothing of pages, rows or second attempts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Self

from batchocr.errors import BatchOcrError
from batchocr.machine import peak_resident_bytes
from batchocr.processes.channel import Channel, wait_for
from batchocr.processes.child import WORKER_COMMAND
from batchocr.processes.messages import Began, Ended, Failed, OpenDocument, Opened, Setup, Task
from batchocr.processes.running_clock import RunningClock
from batchocr.processes.worker import Arrived, Loss, Worker

_LOOK_INTERVAL_S = 1.0
_MAX_BACKLOG = 2
"""How many tasks a worker has before it: while it works on one, it should not have to wait for the next."""

MAX_PAGES = 2000
"""How many pages a worker reads before it is replaced, so that what a library leaks or fragments does not add up over
days."""

_MAX_FAILED_STARTS = 3
"""How many workers, lost before they said a word, mean that none can be started, if no other has said a word since."""


class WorkerPool:
    """A constant number of workers. Belongs to one thread.

    The run's loop: `wait` for what they say, `replace_lost`, `recycle_workers`, give them work with `Worker.send`.
    """

    def __init__(self, count: int, setup: Setup, command: Sequence[str] = WORKER_COMMAND) -> None:
        """Start the workers. Raises BatchOcrError."""
        self.workers: list[Worker] = []
        """The workers to give new work to. Others may still be finishing what they hold."""
        self.peak_worker_bytes: int | None = None
        """The most memory that any ended worker held, as far as is known."""
        self.setup = setup
        self._command = command
        self._clock = RunningClock()
        self._num_failed_starts = 0
        self._retired: list[Worker] = []
        try:
            for _ in range(count):
                self.workers.append(self._start_worker())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open_alone(self, path: str, timeout_s: float) -> Opened | Failed | Loss:
        """Have a worker open a document, and wait for it: for those who have no loop. Raises BatchOcrError."""
        [(_, answer)] = self.map([OpenDocument(0, path)], timeout_s)
        assert isinstance(answer, Opened | Failed | Loss)
        return answer

    def map(self, tasks: Iterable[Task], timeout_s: float) -> Iterator[tuple[Worker, Arrived | Loss]]:
        """Give every worker without a task the next one, and yield how each ended, in order of completion. A worker
        can be sent a further task before the next end is asked for. timeout_s: as in `replace_lost`. Raises
        BatchOcrError."""
        waiting = iter(tasks)
        while True:
            self.recycle_workers()
            for worker, task in zip([worker for worker in self.workers if not worker.task_ids], waiting, strict=False):
                worker.send(task)
            if not any(worker.task_ids for worker in self.workers + self._retired):
                return
            yield from self.ended(timeout_s)

    def ended(self, timeout_s: float) -> Iterator[tuple[Worker, Arrived | Loss]]:
        """Wait until there is something, and yield how tasks ended. timeout_s: as in `replace_lost`. Raises
        BatchOcrError."""
        # What has arrived comes first: while the caller was busy, workers would seem to be late.
        for worker, message in self.wait(_LOOK_INTERVAL_S):
            if not isinstance(message, Began | Ended):
                yield worker, message
        yield from ((loss.worker, loss) for loss in self.replace_lost(timeout_s) if loss.task_ids)

    def with_room(self) -> list[Worker]:
        """The workers that can be given something to do: the idle ones first, then those that hold the fewest tasks; of
        equals the freshest, which what has cost a worker is tried in."""
        workers = [worker for worker in self.workers if worker.backlog < _MAX_BACKLOG]
        return sorted(workers, key=lambda worker: (worker.backlog > 0, len(worker.task_ids), worker.num_pages))

    def wait(self, timeout_s: float, beside: Iterable[Channel[Any, Any]] = ()) -> list[tuple[Worker, Arrived]]:
        """What the workers have said, as soon as there is something; empty after `timeout_s`, and if there is something
        in one of the channels `beside`."""
        workers = self.workers + self._retired
        ready = wait_for((*(worker.channel for worker in workers), *beside), timeout_s)
        heard = [worker for worker in workers if worker.channel.fileno() in ready]
        arrived = [(worker, message) for worker in heard for message in worker.receive()]
        if arrived:
            self._num_failed_starts = 0
        return arrived

    def replace_lost(self, timeout_s: float) -> list[Loss]:
        """End the workers that died or took too long, start others instead, and return what was lost.

        timeout_s: how long opening, rendering or post-processing may take. Raises BatchOcrError if no worker can be
        started, or all die as they start.
        """
        workers = self.workers + self._retired
        losses = [loss for worker in workers if (loss := worker.loss(timeout_s)) is not None]
        for loss in losses:
            self._end(loss.worker)
            if loss.worker in self._retired:
                self._retired.remove(loss.worker)
                continue
            self.workers.remove(loss.worker)
            self._num_failed_starts += not loss.worker.has_spoken
            if self._num_failed_starts >= _MAX_FAILED_STARTS:
                raise BatchOcrError(f"no worker process can be started: {loss.failure.message}")
            self.workers.append(self._start_worker())
        return losses

    def recycle_workers(self) -> None:
        """Retire a worker that has had its share of pages, and end retired ones that no longer hold anything.

        One at a time: they wear out together, and each replacement has to start up. Raises BatchOcrError.
        """
        for worker in [worker for worker in self._retired if not worker.task_ids]:
            self._end(worker)
            self._retired.remove(worker)
        worn = next((worker for worker in self.workers if worker.num_pages >= MAX_PAGES), None)
        if worn is not None and not self._retired:
            self.retire(worn)

    def retire(self, worker: Worker) -> None:
        """Replace the worker by a fresh one; the old one finishes what it holds, and gets no more.

        Does nothing while as many others are still finishing, which would be too many for the machine's memory. Raises
        BatchOcrError.
        """
        if worker in self.workers and len(self._retired) < len(self.workers):
            self.workers[self.workers.index(worker)] = self._start_worker()
            self._retired.append(worker)

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        with ExitStack() as closing:  # all of them, though Ctrl-C be pressed meanwhile
            for worker in self.workers + self._retired:
                closing.callback(self._end, worker)

    def _end(self, worker: Worker) -> None:
        """End a worker, and note its memory, which cannot be read afterwards, nor if it died by itself."""
        peak_bytes = peak_resident_bytes(worker.pid)
        if peak_bytes is not None:
            self.peak_worker_bytes = max(peak_bytes, self.peak_worker_bytes or 0)
        worker.close()

    def _start_worker(self) -> Worker:
        """Raises BatchOcrError."""
        try:
            return Worker(self.setup, self._command, self._clock)
        except OSError as error:
            reason = error.strerror or error
            advice = "try fewer --workers, or a higher `ulimit -n` if files are what is lacking"
            raise BatchOcrError(f"a worker process cannot be started: {reason}; {advice}") from error
