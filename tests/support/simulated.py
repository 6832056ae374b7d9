"""Workers, an engine and a clock that exist only here: how long a run would take, without taking it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from batchocr.data import Completion, Document, Failure, PageResult, Pixels, Reading, Request, Sampling
from batchocr.job.document_run import RowKey
from batchocr.job.pipeline import Pipeline
from batchocr.job.row_plan import RowPlan
from batchocr.job.stop import StopSwitch
from batchocr.processes.counts import Counts
from batchocr.processes.messages import Began, Completions, Ended, Failed, Finished, OpenDocument, Opened, ReadPage
from batchocr.processes.pixels import SharedBatch, share_batch
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Arrived, Asked, Loss

POST_S = 0.02
"""How long a worker takes to go on with a page, which it does twice."""

HANGS = inf
CRASHES = -1.0
"""In place of the seconds that a page takes."""

Message = OpenDocument | ReadPage | Completions


@dataclass(frozen=True)
class Simulated:
    """A document. pages: the seconds that it takes to render each. damaged: whether none of them can be read. problem:
    what each of its pages fails with. doc_id: documents with the same are copies."""

    pages: Sequence[float]
    open_s: float = 0.01
    damaged: bool = False
    problem: Failure | None = None
    doc_id: str = "id"


class SimulatedWorker:
    """Does one thing at a time; pages that have their answers go first."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self.has_spoken = True
        self.num_pages = 0
        self.task_ids: set[int] = set()
        self.doing: Began | None = None
        self.began_s = self.ends_s = 0.0
        self._machine = machine
        self._new: deque[OpenDocument | ReadPage] = deque()
        self._answered: deque[Completions] = deque()
        self._message: Message | None = None
        self._documents: dict[int, Simulated] = {}
        self._rounds: dict[int, int] = {}

    @property
    def backlog(self) -> int:
        return len(self._new) + len(self._answered) + (self.doing is not None)

    @property
    def busy_s(self) -> float:
        return self._machine.now_s - self.began_s if self.doing else 0.0

    def send(self, message: Message) -> None:
        self.task_ids.add(message.task_id)
        if isinstance(message, Completions):
            self._answered.append(message)
        else:
            self._new.append(message)
            self.num_pages += isinstance(message, ReadPage)
            if isinstance(message, ReadPage):
                self._machine.begun[message.path, message.page_index] += 1
        if self.doing is None:
            self._begin()

    def _begin(self) -> None:
        if not self._answered and not self._new:
            return
        self._message = message = self._answered.popleft() if self._answered else self._new.popleft()
        self.began_s = self._machine.now_s
        self.doing = Began(message.task_id, "post-process" if isinstance(message, Completions) else "render")
        self.ends_s = self.began_s + abs(self._seconds(message))

    def _seconds(self, message: Message) -> float:
        if isinstance(message, Completions):
            return POST_S
        document = self._machine.documents[message.path]
        return document.open_s if isinstance(message, OpenDocument) else document.pages[message.page_index]

    @property
    def crashes(self) -> bool:
        return isinstance(self._message, ReadPage) and self._seconds(self._message) == CRASHES

    def finish(self) -> None:
        """Say how what it is doing has ended, and begin something else."""
        message = self._message
        assert message is not None
        assert self.doing is not None
        number = message.task_id
        self._machine.say(self, Ended(number, self.doing.activity, self.ends_s - self.began_s))
        self.doing = None
        match message:
            case OpenDocument():
                document = self._machine.documents[message.path]
                num_pages = len(document.pages)
                self._end(Opened(number, num_pages, document.doc_id, 100 * num_pages, 1))
            case ReadPage() if self._machine.documents[message.path].damaged:
                self._end(Failed(number, Failure("damaged", "no such page")))
            case ReadPage() if (problem := self._machine.documents[message.path].problem) is not None:
                self._end(Failed(number, problem))
            case Completions() if self._rounds.pop(number):
                self._end(Finished(number, Reading("", (), 0, 0)))
            case _:
                self._rounds[number] = isinstance(message, Completions)
                self._machine.say(self, Asked(number, SharedBatch(*share_batch(number, [QUESTION]))))
        self._begin()

    def _end(self, message: Arrived) -> None:
        self.task_ids.discard(message.task_id)
        self._machine.say(self, message)


QUESTION = Request(Pixels(1, 1, b"\0\0\0"), "", Sampling(1))


class SimulatedMachine:
    """A pool of workers, and engines that answer at once. now_s: its clock, which moves while the run waits. begun: how
    often each page was given to a worker, by path and index."""

    channels = ()

    def __init__(self, documents: dict[str, Simulated], num_workers: int, page_timeout_s: float) -> None:
        self.documents = documents
        self.now_s = 0.0
        self.num_lost = 0
        self.begun: Counter[tuple[str, int]] = Counter()
        self._page_timeout_s = page_timeout_s
        self._said: list[tuple[SimulatedWorker, Arrived]] = []
        self._asked: list[int] = []
        self.workers = [SimulatedWorker(self) for _ in range(num_workers)]

    def say(self, worker: SimulatedWorker, message: Arrived) -> None:
        self._said.append((worker, message))

    def with_room(self) -> list[SimulatedWorker]:
        return WorkerPool.with_room(self)  # type: ignore[arg-type, return-value]

    def wait(self, timeout_s: float, beside: object) -> list[tuple[SimulatedWorker, Arrived]]:
        busy = [worker for worker in self.workers if worker.doing]
        if timeout_s and not self._said and not self._asked and busy:
            ends_s = min(min(worker.ends_s, worker.began_s + self._page_timeout_s) for worker in busy)
            self.now_s = max(self.now_s, ends_s)
            for worker in busy:
                if worker.ends_s <= self.now_s + 1e-9 and not worker.crashes:
                    worker.finish()
        said, self._said = self._said, []
        return said

    def replace_lost(self, timeout_s: float) -> list[Loss]:
        losses = []
        for worker in [worker for worker in self.workers if worker.doing]:
            crashed = worker.crashes and worker.ends_s <= self.now_s + 1e-9
            if crashed or worker.busy_s >= timeout_s - 1e-6:
                failure = Failure("crashed" if crashed else "timeout", "lost")
                losses.append(Loss(worker, frozenset(worker.task_ids), worker.doing, worker.busy_s, failure))
                self.workers[self.workers.index(worker)] = SimulatedWorker(self)
        self.num_lost += len(losses)
        return losses

    def retire(self, worker: SimulatedWorker) -> None:
        raise AssertionError("no page runs out of memory here")

    def recycle_workers(self) -> None:
        pass

    def ask(self, key: int, batch: SharedBatch) -> None:
        self._asked.append(key)

    def take_answers(self) -> list[tuple[int, tuple[Completion, ...]]]:
        asked, self._asked = self._asked, []
        return [(key, (Completion("", "stop", 1, 1, 1.0, 0.0),)) for key in asked]


@dataclass(frozen=True)
class Row:
    """A row, and when it was finished."""

    key: RowKey
    result: PageResult
    at_s: float


def simulate(
    *documents: Simulated,
    workers: int = 2,
    pages_in_flight: int = 6,
    page_timeout_s: float = 60.0,
    limit: int | None = None,
    max_unreleased: int | None = None,
) -> list[Row]:
    """Read the documents with a simulated machine."""
    by_path = {f"/{number}": document for number, document in enumerate(documents)}
    machine = SimulatedMachine(by_path, workers, page_timeout_s)
    plan = RowPlan([Document(path, path) for path in by_path], None, None, limit=limit, max_unreleased=max_unreleased)
    pipeline = Pipeline(
        plan,
        machine,  # type: ignore[arg-type]
        Counts(),
        lambda: (machine, pages_in_flight),  # type: ignore[arg-type, return-value]
        page_timeout_s,
    )
    rows: list[Row] = []
    waiting: set[int] = set()
    following = 0
    for key, result in pipeline.results(StopSwitch(), lambda: None):
        rows.append(Row(key, result, machine.now_s))
        waiting.add(plan.output_index(key))
        while following in waiting:
            plan.end_of_window += 1
            waiting.remove(following)
            following += 1
    return rows
