"""The run's loop with workers and an engine that only exist in this file: what is begun, routed, begun again, ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import pytest

from batchocr.data import Completion, Document, Failure, PageResult, Pixels, Reading, Request, Sampling
from batchocr.job import stop as stopping
from batchocr.job.document_run import RowKey
from batchocr.job.pipeline import Pipeline
from batchocr.job.row_plan import RowPlan
from batchocr.job.stop import StopSwitch
from batchocr.processes.child import _killing
from batchocr.processes.counts import Counts
from batchocr.processes.engine_messages import Answers
from batchocr.processes.messages import Began, Completions, Failed, Finished, OpenDocument, Opened, Question, ReadPage
from batchocr.processes.pixels import SharedBatch, share_batch
from batchocr.processes.questions import Questions
from batchocr.processes.worker import Arrived, Asked, Loss
from tests.support.fake_engines import PatientEngines

Message = OpenDocument | ReadPage | Completions
Rows = Iterator[tuple[RowKey, PageResult]]

CRASH = Failure("crashed", "the worker process was ended by SIGSEGV")


class ScriptedWorker:
    """Opens a document at once; asks two questions about a page; finishes it with the answers.

    pages: those that it is reading, by task. dying: the task at which it has died.
    """

    def __init__(self, pool: ScriptedPool) -> None:
        self.backlog = self.num_pages = 0
        self.has_spoken = True
        self.task_ids: set[int] = set()
        self.pages: dict[int, int] = {}
        self.dying: int | None = None
        self._pool = pool

    def send(self, message: Message) -> None:
        self.task_ids.add(message.task_id)
        if self.dying is not None:
            return
        match message:
            case OpenDocument():
                self._end(Opened(message.task_id, self._pool.page_count, "id", size=self._pool.size, mtime_ns=456))
            case ReadPage():
                self.pages[message.task_id] = message.page_index
                self._pool.begun.append(message.page_index)
                self._pool.files_asked_for.add((message.size, message.mtime_ns))
                self._pool.most_in_flight = max(self._pool.most_in_flight, self._pool.num_in_flight())
                if self._pool.deaths[message.page_index]:
                    self._pool.deaths[message.page_index] -= 1
                    self.dying = message.task_id
                elif message.page_index not in self._pool.never_answered:
                    questions = tuple(question(f"{message.page_index}{part}") for part in "ab")
                    self._pool.say(self, Asked(message.task_id, SharedBatch(*share_batch(message.task_id, questions))))
            case Completions():
                text = " ".join(answer.text for answer in message.completions)
                del self.pages[message.task_id]
                reading = Reading(text, (), 0, 0, ink_outside=0.25, text_layer_agreement=0.5)
                self._end(Finished(message.task_id, reading))

    def _end(self, message: Arrived) -> None:
        self.task_ids.discard(message.task_id)
        self._pool.say(self, message)


class ScriptedPool:
    """Two workers and what they said.

    deaths: how many workers each page still costs. never_answered: pages of which nothing is heard again. begun: the
    pages, each time that one was given to a worker. files_asked_for: the size and mtime_ns of the versions to be read.
    """

    def __init__(self, page_count: int, deaths: dict[int, int] | None = None, never_answered: tuple[int, ...] = ()):
        self.page_count = page_count
        self.size = 123
        self.deaths = Counter(deaths)
        self.never_answered = never_answered
        self.begun: list[int] = []
        self.files_asked_for: set[tuple[int | None, int | None]] = set()
        self.most_in_flight = 0
        self.retired: list[ScriptedWorker] = []
        self._said: list[tuple[ScriptedWorker, Arrived]] = []
        self.workers = [ScriptedWorker(self), ScriptedWorker(self)]

    def num_in_flight(self) -> int:
        return sum(len(worker.pages) for worker in self.workers)

    def say(self, worker: ScriptedWorker, message: Arrived) -> None:
        self._said.append((worker, message))

    def with_room(self) -> list[ScriptedWorker]:
        return self.workers

    def wait(self, timeout_s: float, beside: object = ()) -> list[tuple[ScriptedWorker, Arrived]]:
        said, self._said = self._said, []
        return said

    def replace_lost(self, timeout_s: float) -> list[Loss]:
        losses = [
            Loss(worker, frozenset(worker.task_ids), Began(worker.dying, "render"), 0.1, CRASH)
            for worker in self.workers
            if worker.dying is not None
        ]
        for loss in losses:
            self.workers[self.workers.index(loss.worker)] = ScriptedWorker(self)
            self._said = [said for said in self._said if said[1].task_id not in loss.task_ids]
        return losses

    def retire(self, worker: ScriptedWorker) -> None:
        self.retired.append(worker)

    def recycle_workers(self) -> None:
        pass


class EchoingEngine:
    """Answers each question with its prompt in capitals, the newest batch first."""

    channels = ()

    def __init__(self) -> None:
        self._asked: list[tuple[int, SharedBatch]] = []

    def ask(self, key: int, batch: SharedBatch) -> None:
        self._asked.append((key, batch))

    def take_answers(self) -> list[tuple[int, tuple[Completion, ...]]]:
        asked, self._asked = self._asked, []
        return [(key, tuple(map(self._answer, batch.message.questions))) for key, batch in reversed(asked)]

    def _answer(self, question: Question) -> Completion:
        return Completion(question.prompt.upper(), "stop", 1, 1, 1.0, 0.0)


def question(prompt: str) -> Request:
    return Request(Pixels(1, 1, b"\0\0\0"), prompt, Sampling(8))


def pipeline_of(
    plan: RowPlan,
    pool: ScriptedPool,
    engines: EchoingEngine | Questions | None = None,
    *,
    pages_in_flight: int = 4,
) -> Pipeline:
    return Pipeline(plan, pool, Counts(), lambda: (engines or EchoingEngine(), pages_in_flight), 1.0)


def read(
    pool: ScriptedPool,
    *,
    pages_in_flight: int = 4,
    stop: StopSwitch | None = None,
    paths: Sequence[str] = ("/nowhere/a.pdf",),
    limit: int | None = None,
    engines: EchoingEngine | Questions | None = None,
) -> Rows:
    plan = RowPlan([Document(path, path) for path in paths], None, None, limit=limit)
    pipeline = pipeline_of(plan, pool, engines, pages_in_flight=pages_in_flight)
    ticks = count()

    def tick() -> None:
        assert next(ticks) < 1000, "the loop does not end"

    return pipeline.results(stop or StopSwitch(), tick)


def test_the_answers_of_a_page_reach_it_in_the_order_of_its_questions() -> None:
    rows = {key.page_index: row for key, row in read(ScriptedPool(page_count=5))}
    assert {index: row.markdown for index, row in rows.items()} == {index: f"{index}A {index}B" for index in range(5)}
    assert {(row.status, row.ink_outside, row.text_layer_agreement) for row in rows.values()} == {("ok", 0.25, 0.5)}


def test_pages_are_read_from_the_version_of_the_file_that_was_opened() -> None:
    pool = ScriptedPool(page_count=5)
    assert len(list(read(pool))) == 5
    assert pool.files_asked_for == {(123, 456)}


@pytest.mark.parametrize("pages_in_flight", [1, 3])
def test_no_more_pages_are_in_flight_than_are_allowed(pages_in_flight: int) -> None:
    pool = ScriptedPool(page_count=9)
    assert len(list(read(pool, pages_in_flight=pages_in_flight))) == 9
    assert pool.most_in_flight == pages_in_flight


def test_a_page_that_costs_a_worker_once_is_read_by_another() -> None:
    rows = {key.page_index: row for key, row in read(ScriptedPool(page_count=3, deaths={1: 1}))}
    assert (rows[1].status, rows[1].attempts, rows[1].markdown) == ("ok", 2, "1A 1B")


class SlowEngines(PatientEngines):
    """Answers every third time that it is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self._looks = count()

    def receive(self) -> list[Answers]:
        if next(self._looks) % 3 == 2:
            self.answer()
        return super().receive()


class SameQuestions(ScriptedPool):
    """Every page asks the same. worker_dies: the one that has asked for page 0, before it is answered, once."""

    worker_dies = True

    def say(self, worker: ScriptedWorker, message: Arrived) -> None:
        if isinstance(message, Asked):
            questions = [question("a"), question("b")]
            message = Asked(message.task_id, SharedBatch(*share_batch(message.task_id, questions)))
            if self.worker_dies and worker.pages[message.task_id] == 0 and self.begun.count(0) == 1:
                worker.dying = message.task_id
        super().say(worker, message)


def test_pages_that_wait_for_a_question_of_one_whose_worker_is_lost_have_its_answer() -> None:
    engines, pool = SlowEngines(), SameQuestions(page_count=6)
    rows = {key.page_index: row for key, row in read(pool, engines=Questions(engines))}  # type: ignore[arg-type]
    assert {(index, row.status, row.markdown) for index, row in rows.items()} == {
        (index, "ok", "A B") for index in range(6)
    }
    assert engines.prompts == ["a", "b"]
    assert rows[0].attempts == 2


def test_pages_that_wait_for_one_another_hold_up_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "GRACE_S", -1.0)
    engines, stop = PatientEngines(), StopSwitch()
    looks = count()

    def never() -> list[Answers]:
        if next(looks) == 20:
            stop.request("terminated")
        return []

    monkeypatch.setattr(engines, "receive", never)
    pool = SameQuestions(page_count=6)
    pool.worker_dies = False
    assert list(read(pool, stop=stop, engines=Questions(engines))) == []  # type: ignore[arg-type]
    assert engines.prompts == ["a", "b"]
    assert pool.begun == [0, 1, 2, 3], "as many as may be in flight, of which three wait for the first"


def test_a_stop_begins_nothing_more_and_finishes_what_is_in_flight() -> None:
    pool, stop = ScriptedPool(page_count=100), StopSwitch()
    rows = read(pool, stop=stop)
    first = next(rows)
    begun = len(pool.begun)
    stop.request("terminated")
    finished = [first, *rows]
    assert len(pool.begun) == len(finished) == begun < 100
    assert all(row.status == "ok" for _, row in finished)


def test_what_is_not_finished_within_the_grace_period_is_left_for_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "GRACE_S", -1.0)
    pool, stop = ScriptedPool(page_count=3, never_answered=(1,)), StopSwitch()
    rows = read(pool, stop=stop)
    read_before = [next(rows)[0].page_index for _ in range(2)]
    stop.request("terminated")
    assert list(rows) == []
    assert sorted(index for index in read_before if index is not None) == [0, 2]


def test_a_document_lost_while_it_is_opened_is_opened_again_however_many_wait_behind_it() -> None:
    pool, late = ScriptedPool(page_count=1), list[tuple[ScriptedWorker, Failed]]()

    class SlowToOpen(ScriptedWorker):
        def send(self, message: Message) -> None:
            if isinstance(message, OpenDocument) and message.path == "/8" and not pool.retired:
                late.append((self, Failed(message.task_id, Failure("out_of_memory", "too much"))))
            else:
                super().send(message)

    class BusyEngine(EchoingEngine):
        """Answers nothing until all other documents are opened. The one is lost after that."""

        num_looks = 0

        def take_answers(self) -> list[tuple[int, tuple[Completion, ...]]]:
            self.num_looks += 1
            if self.num_looks == 100:
                pool.say(*late[0])
            return super().take_answers() if self.num_looks > 60 else []

    pool.workers = [SlowToOpen(pool), SlowToOpen(pool)]
    rows = list(read(pool, paths=[f"/{number}" for number in range(60)], limit=100, engines=BusyEngine()))
    assert (len(rows), len(pool.retired)) == (60, 1)


def test_a_kill_by_the_system_for_want_of_memory_is_not_held_against_the_page_that_was_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out_of_memory = _killing("worker", 3, 4)
    assert (out_of_memory.failure.kind, out_of_memory.killed) == ("out_of_memory", True)
    assert "most likely by the system for lack of memory" in out_of_memory.failure.message
    pool = ScriptedPool(page_count=4, deaths={1: 4})
    replace_lost = pool.replace_lost

    def killed(timeout_s: float) -> list[Loss]:
        return [replace(loss, failure=out_of_memory.failure, killed=True) for loss in replace_lost(timeout_s)]

    monkeypatch.setattr(pool, "replace_lost", killed)
    rows = {key.page_index: row for key, row in read(pool)}
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows[1].attempts == 5
