"""Workers, an engine and a clock that exist only here: how long a run would take, without taking it.

What the run knows of its workers, and does with them, is real: only the processes are not.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, TypeAlias

from batchocr.data import Completion, Document, Failure, PageResult, Pixels, Reading, Request, Sampling
from batchocr.job.document_run import RowKey
from batchocr.job.pipeline import Pipeline
from batchocr.job.row_plan import RowPlan
from batchocr.job.stop import StopSwitch
from batchocr.processes.child import Child, Death, _killing
from batchocr.processes.counts import Counts
from batchocr.processes.messages import (
    Began,
    Completions,
    Ended,
    Failed,
    Finished,
    FromWorker,
    OpenDocument,
    Opened,
    Question,
    ReadPage,
    RequestBatch,
    Setup,
    ToWorker,
)
from batchocr.processes.pixels import SharedBatch, share_batch
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Arrived, Loss, Worker
from batchocr.storage.listing import Documents
from batchocr.storage.uris import is_uri

POST_S: Final = 0.02
"""How long a worker takes to go on with a page, which it does twice."""

HANGS: Final = inf
DAMAGED: Final = Failure("damaged", "no such page")
CRASHES, KILLED, OUT_OF_MEMORY = -1.0, -2.0, -3.0
"""In place of the seconds that something takes. So it ends after one: with the worker, or with a failure."""

Seconds: TypeAlias = float | tuple[float, ...]
"""How long something takes each time; or the first time, the second, and so on."""

QUESTIONS: Final = ("?",), ("a", "b")
"""What a page asks first, and then. The page's index comes before it."""


@dataclass(frozen=True)
class Simulated:
    """A document."""

    pages: Sequence[Seconds]
    """How long it takes to render each."""
    open_s: Seconds = 0.01
    """How long it takes to open it, and to fetch an object, which a worker does that has not read from it before."""
    problem: Failure | None = None
    """What each of its pages fails with."""
    opens: bool = True
    """Whether it can be opened."""
    doc_id: str = "id"
    """Documents with the same are copies."""
    asks_the_same: bool = False
    """Whether its pages have the same questions."""
    doubted: bool = False
    """As in Opened."""

    def opened(self, task_id: int) -> Opened | Failed:
        if not self.opens:
            return Failed(task_id, DAMAGED, self.doc_id)
        return Opened(task_id, len(self.pages), self.doc_id, *self.version, self.doubted)

    @property
    def version(self) -> tuple[int, int]:
        """The size and mtime_ns of its file."""
        return 100 * len(self.pages), 456


class _NoProcess(Child[ToWorker, FromWorker, Arrived]):
    """Stands for the process, and for the channel to it."""

    pid = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.fault = None
        self.channel: Any = self
        self.closed = False
        self.death_: Death | None = None

    def die(self, death: Death) -> None:
        self.death_, self.closed = death, True

    def death(self) -> Death:
        assert self.death_ is not None
        return self.death_

    def close(self) -> None:
        self.closed = True


class SimulatedWorker(Worker, _NoProcess):
    """Does one thing at a time; pages that have their answers go first."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self.ends_s = inf
        self._machine = machine
        self._new: deque[OpenDocument | ReadPage] = deque()
        self._answered: deque[Completions] = deque()
        self._message: OpenDocument | ReadPage | Completions | None = None
        self._takes = 0.0
        self._reading: dict[int, tuple[ReadPage, list[str]]] = {}
        self.at: tuple[str, int | None] = "", None
        self._fetched: set[str] = set()
        super().__init__(SETUP, (), machine)  # type: ignore[arg-type]
        self.has_spoken = True

    @property
    def num_reading(self) -> int:
        """How many pages it holds."""
        return sum(number in self._reading for number in self.task_ids)

    def _tell(self, message: ToWorker, descriptor: int | None = None) -> None:
        match message:
            case Completions():
                self._answered.append(message)
            case OpenDocument() | ReadPage():
                self._new.append(message)
                if isinstance(message, ReadPage):
                    self._reading[message.task_id] = (message, [])
                self._machine.most_in_flight = max(self._machine.most_in_flight, self._machine.num_in_flight())
        if self._message is None:
            self._begin()

    def _begin(self) -> None:
        self.ends_s = inf
        if self._answered or self._new:
            message = self._message = self._answered.popleft() if self._answered else self._new.popleft()
            is_new = not isinstance(message, Completions)
            self._follow(Began(message.task_id, "render" if is_new else "post-process"), None)
            self._takes = self._seconds(message)
            self.ends_s = self._machine.now() + (self._takes if self._takes >= 0 else 1.0)

    def _seconds(self, message: OpenDocument | ReadPage | Completions) -> float:
        if isinstance(message, Completions):
            page, _ = self._reading[message.task_id]
            self.at = page.path, page.page_index
            return POST_S
        path, machine = message.path, self._machine
        self.at = path, message.page_index if isinstance(message, ReadPage) else None
        document, fetch_s = machine.documents[path], 0.0
        if is_uri(path) and path not in self._fetched:
            self._fetched.add(path)
            machine.fetched[path] += 1
            fetch_s = _at(document.open_s, machine.fetched[path])
        if isinstance(message, OpenDocument):
            machine.opened[path] += 1
            return _at(document.open_s, machine.opened[path])
        machine.begun[path, message.page_index] += 1
        seconds = _at(document.pages[message.page_index], machine.begun[path, message.page_index])
        return min(fetch_s, seconds) if min(fetch_s, seconds) < 0 else fetch_s + seconds

    def receive(self) -> list[Arrived]:
        said: list[Arrived] = []
        while self.ends_s <= self._machine.now() + 1e-9 and not self.closed:
            said += self._finish()
        return said

    def _finish(self) -> list[Arrived]:
        """What it says of what it was doing, unless it dies of it."""
        message, self._message = self._message, None
        assert message is not None and self.doing is not None
        if self._takes == CRASHES:
            self.die(Death(Failure("crashed", "it crashed")))
        elif self._takes == KILLED:
            self.die(_killing("worker", 3, 4))
        if self.closed:
            return []
        said = [*self._follow(Ended(message.task_id, self.doing.activity, self.ends_s - self._progress_s), None)]
        if self._takes == OUT_OF_MEMORY:
            said += self._follow(Failed(message.task_id, Failure("out_of_memory", "too much")), None)
        elif isinstance(message, OpenDocument):
            said += self._follow(self._machine.documents[message.path].opened(message.task_id), None)
        else:
            said += self._go_on(message)
        self._begin()
        return said

    def _go_on(self, message: ReadPage | Completions) -> Sequence[Arrived]:
        """What a page asks or ends with."""
        number = message.task_id
        page, texts = self._reading[number]
        document = self._machine.documents[page.path]
        if (page.size, page.mtime_ns) != document.version:
            return self._follow(Failed(number, Failure("changed", "another version")), None)
        if document.problem is not None:
            return self._follow(Failed(number, document.problem), None)
        texts += (answer.text for answer in message.completions) if isinstance(message, Completions) else ()
        if len(texts) == 3:
            reading = Reading(" ".join(texts), (), 0, 0, ink_outside=0.25, text_layer_agreement=0.5, width=1, height=1)
            return self._follow(Finished(number, reading), None)
        name = "" if document.asks_the_same else page.page_index
        num_rounds = len(texts)  # the first asks one question
        questions = tuple(question(f"{name}{part}") for part in QUESTIONS[num_rounds])
        return self._follow(RequestBatch(number, num_rounds, questions), os.dup(PIXELS))


def _at(seconds: Seconds, attempt: int) -> float:
    return seconds[min(attempt, len(seconds)) - 1] if isinstance(seconds, tuple) else seconds


_, PIXELS = share_batch(0, [Request(Pixels(1, 1, b"\0\0\0"), "", Sampling(8))])


def question(prompt: str) -> Question:
    return Question(0, 1, 1, prompt, Sampling(8), None, digest=prompt)


SETUP = Setup(dpi=1, password=None, max_new_tokens=1, penalties=False, memory_bytes=1)


class SimulatedMachine(WorkerPool):
    """A pool of workers, and an engine that answers with prompts in capitals, the newest first.

    now: the clock, which moves while the run waits. begun, opened: how often a worker began with each page, by path and
    index, and with opening each document. cost: how many workers were lost while they were at each of these. fetched:
    how often each object was fetched. kills: when somebody kills the
    worker that holds most.
    """

    channels = ()

    def __init__(
        self,
        documents: dict[str, Simulated],
        workers: int = 2,
        *,
        answer_s: float = 0.0,
        kills: Sequence[float] = (),
    ) -> None:
        self.documents = documents
        self.begun: Counter[tuple[str, int]] = Counter()
        self.opened: Counter[str] = Counter()
        self.cost: Counter[tuple[str, int | None]] = Counter()
        self.fetched: Counter[str] = Counter()
        self.most_in_flight = self.num_retired = 0
        self._now_s = 0.0
        self._answer_s = answer_s
        self._kills = deque(sorted(kills))
        self._asked: list[tuple[float, int, SharedBatch]] = []
        self._num_idle_waits = 0
        super().__init__(workers, SETUP)

    def now(self) -> float:
        return self._now_s

    def num_in_flight(self) -> int:
        return sum(worker.num_reading for worker in self._all())

    def _all(self) -> list[Any]:
        return self.workers + self._retired

    def _start_worker(self) -> SimulatedWorker:
        return SimulatedWorker(self)

    def retire(self, worker: Worker) -> None:
        self.num_retired += 1
        super().retire(worker)

    def wait(self, timeout_s: float, beside: object = ()) -> list[tuple[Worker, Arrived]]:
        workers = self._all()
        self._num_idle_waits = 0 if any(worker.doing for worker in workers) else self._num_idle_waits + 1
        assert self._num_idle_waits < 5000, "the loop does not end"
        next_s = min((*(worker.ends_s for worker in workers), *(due_s for due_s, _, _ in self._asked), *self._kills))
        self._now_s = max(self._now_s, min(self._now_s + timeout_s, next_s))
        while self._kills and self._kills[0] <= self._now_s:
            self._kills.popleft()
            max(self.workers, key=lambda worker: len(worker.task_ids)).die(_killing("worker", 0, 0))
        return [(worker, message) for worker in self._all() for message in worker.receive()]

    def replace_lost(self, timeout_s: float) -> list[Loss]:
        losses = super().replace_lost(timeout_s)
        self.cost.update(loss.worker.at for loss in losses if loss.doing)
        return losses

    def ask(self, key: int, batch: SharedBatch) -> None:
        self._asked.append((self._now_s + self._answer_s, key, batch))

    def take_answers(self) -> list[tuple[int, tuple[Completion, ...]]]:
        due = [asked for asked in self._asked if asked[0] <= self._now_s]
        self._asked = [asked for asked in self._asked if asked[0] > self._now_s]
        return [(key, tuple(map(answer, batch.message.questions))) for _, key, batch in reversed(due)]

    def pipeline(self, plan: RowPlan, *, pages_in_flight: int = 6, engines: Any = None) -> Pipeline:
        return Pipeline(plan, self, Counts(), lambda: (engines or self, pages_in_flight), 60.0)

    def rows(
        self,
        *,
        pages_in_flight: int = 6,
        limit: int | None = None,
        max_unreleased: int | None = None,
        stop: StopSwitch | None = None,
        engines: Any = None,
        tick: Callable[[], None] = lambda: None,
    ) -> Iterator[Row]:
        """Read the documents; a row is released as soon as all before it are there."""
        documents = [Document(path, path) for path in self.documents]
        plan = RowPlan(Documents(documents), None, None, limit=limit, max_unreleased=max_unreleased)
        pipeline = self.pipeline(plan, pages_in_flight=pages_in_flight, engines=engines)
        early, following = set[int](), 0
        for key, result in pipeline.results(stop or StopSwitch(), tick):
            early.add(plan.output_index(key))
            while following in early:
                plan.end_of_window += 1
                early.remove(following)
                following += 1
            yield Row(key, result, self.now())


def answer(question: Question) -> Completion:
    return Completion(question.prompt.upper(), "stop", 1, 1, 1.0, 0.0)


@dataclass(frozen=True)
class Row:
    """A row, and when it was finished."""

    key: RowKey
    result: PageResult
    at_s: float


def simulate(*documents: Simulated, workers: int = 2, **options: Any) -> list[Row]:
    """Read the documents with a simulated machine."""
    return list(machine_with(*documents, workers=workers).rows(**options))


def machine_with(*documents: Simulated, **options: Any) -> SimulatedMachine:
    """A machine with the documents /0, /1 and so on."""
    return SimulatedMachine({f"/{number}": document for number, document in enumerate(documents)}, **options)
