"""What a worker does next: each rule of `PageScheduler.next_for`, and of the pool that says who asks first."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from batchocr.job.document_run import DocumentRun
from batchocr.processes.messages import OpenDocument, ReadPage
from tests.support.simulated import (
    CRASHES,
    HANGS,
    KILLED,
    Row,
    Simulated,
    SimulatedMachine,
    machine_with,
    simulate,
)


class ReachedError(Exception):
    """It is as late as a test wants to know about."""


def begun_by(machine: SimulatedMachine, at_s: float, **options: Any) -> Counter[str]:
    """How many pages of each document workers have begun with by then."""

    def tick() -> None:
        if machine.now() >= at_s:
            raise ReachedError

    with suppress(ReachedError):
        list(machine.rows(tick=tick, **options))
    return Counter(path for path, _ in machine.begun.elements())


def last_s(rows: list[Row], document: int) -> float:
    """When the last row of the document was finished."""
    return max(row.at_s for row in rows if row.key.document == document)


# Who asks first


def test_idle_workers_ask_first_then_those_with_the_fewest_tasks_and_of_equals_the_freshest() -> None:
    machine = machine_with(Simulated([0.1] * 9, open_s=5.0), workers=5)
    full, busy, waiting, worn, fresh = machine.workers
    for number in range(2):
        full.send(OpenDocument(number, "/0"))
    busy.send(OpenDocument(3, "/0"))
    waiting.send(ReadPage(4, "/0", 0, *machine.documents["/0"].version))
    machine.wait(0.2)
    worn.num_pages = 2
    assert machine.with_room() == [fresh, worn, waiting, busy], "and not one that has two things to do"


# Its share


def test_while_others_wait_a_document_has_half_of_the_pages_in_flight() -> None:
    machine = machine_with(Simulated([0.01] * 20), Simulated([0.01], open_s=5.0), answer_s=9.0)
    assert begun_by(machine, 4.0) == {"/0": 3}


def test_while_others_are_opened_a_document_has_half_of_the_workers() -> None:
    machine = machine_with(Simulated([10.0] * 20), Simulated([0.01], open_s=20.0), workers=5)
    assert begun_by(machine, 5.0, pages_in_flight=20) == {"/0": 2}


def test_no_page_waits_behind_a_slow_one_of_another_document() -> None:
    rows = simulate(Simulated([50.0]), *[Simulated([0.1] * 30)] * 3, workers=4, pages_in_flight=12)
    assert max(last_s(rows, document) for document in (1, 2, 3)) < 9.0


def test_a_document_leaves_the_workers_alone_that_wait_for_the_answers_of_another() -> None:
    machine = machine_with(Simulated([HANGS] * 4), Simulated([0.1]), answer_s=1.0)
    assert last_s(list(machine.rows()), 1) < 3.0


# What has cost something


def test_what_has_cost_something_waits_until_no_other_document_is_being_read() -> None:
    machine = machine_with(Simulated([CRASHES, *[HANGS] * 3]), Simulated([0.1]), answer_s=5.0)
    assert begun_by(machine, 8.0) == {"/0": 1, "/1": 1}


def test_what_is_slow_but_has_cost_no_worker_is_read_by_all() -> None:
    assert last_s(simulate(Simulated([12.0] * 4), pages_in_flight=2), 0) < 26.0


def test_a_page_that_failed_once_is_not_tried_again_after_its_document_was_given_up() -> None:
    rows = simulate(Simulated([59.0] * 2 + [HANGS] * 4), workers=1, pages_in_flight=1)
    results = {row.key.page_index: row.result for row in rows}
    assert [results[page_index].attempts for page_index in range(6)] == [1, 1, 2, 2, 1, 0]
    assert str(results[4].error_message).startswith("it took longer than"), "it was tried"


def test_a_page_at_which_its_worker_is_killed_again_and_again_is_tried_five_times() -> None:
    [row] = simulate(Simulated([KILLED]))
    assert (row.result.status, row.result.error_kind, row.result.attempts) == ("failed", "out_of_memory", 5)


def test_what_a_killed_worker_held_is_begun_again_in_order() -> None:
    rows = machine_with(Simulated([0.1] * 4), workers=1, answer_s=2.0, kills=[1.0]).rows()
    assert [row.key.page_index for row in rows] == [0, 1, 2, 3]


def test_pages_that_waited_in_lost_workers_are_begun_again_however_often() -> None:
    machine = machine_with(Simulated([0.1] * 3), *[Simulated([0.1], open_s=HANGS)] * 4, workers=1, answer_s=300.0)
    rows = [row.result for row in machine.rows() if row.key.document == 0]
    assert [row.status for row in rows] == ["ok"] * 3
    assert min(row.attempts for row in rows) > 5


# Objects


def objects(*documents: Simulated, files: int = 0) -> dict[str, Simulated]:
    """The first takes long to open, so that one worker opens all others meanwhile. The last ones are files."""
    paths = [f"s3://b/{number}" for number in range(len(documents) - files)]
    return dict(zip([*paths, *(f"/{number}" for number in range(files))], documents, strict=True))


SLOW_TO_OPEN = Simulated([0.1], open_s=2.0)


def test_an_object_is_left_to_the_worker_that_has_fetched_it_if_that_is_idle_too() -> None:
    machine = SimulatedMachine(objects(SLOW_TO_OPEN, *[Simulated([0.1])] * 2))
    assert len(list(machine.rows(limit=10))) == machine.fetched.total() == 3


def test_objects_that_a_busy_worker_has_fetched_come_after_others_and_do_not_wait_for_it() -> None:
    machine = SimulatedMachine(
        objects(SLOW_TO_OPEN, Simulated([50.0]), Simulated([0.1]), Simulated([0.1]), files=1), answer_s=0.1
    )
    rows = list(machine.rows(limit=10))
    assert [row.key.document for row in rows] == [0, 3, 2, 1]
    assert rows[2].at_s < 10.0


def test_an_object_is_known_to_be_fetched_however_many_pages_of_others_were_read_since() -> None:
    long, last = Simulated([11.0], open_s=2.0), Simulated([0.1])
    rows = SimulatedMachine(objects(long, Simulated([0.1] * 100), last, last, files=1)).rows(limit=200)
    assert [row.key.document for row in rows if row.key.document in (2, 3)] == [3, 2]


def test_an_idle_worker_opens_the_next_object_before_it_fetches_what_a_busy_one_has() -> None:
    documents = [Simulated([0.05 * (1 + number % 4)] * (1 + number % 6), open_s=0.3) for number in range(120)]
    machine = SimulatedMachine(objects(*documents), workers=8, answer_s=0.3)
    assert len(list(machine.rows(pages_in_flight=40))) == 420
    assert machine.fetched.total() < 120 + 20


# Opening ahead


def test_documents_are_opened_two_thousand_rows_ahead() -> None:
    machine = machine_with(*[Simulated([0.1] * 500)] * 20, answer_s=90.0)
    begun_by(machine, 50.0)
    assert len(machine.opened) in (5, 6)


def test_of_objects_four_rows_for_each_worker_are_fetched_ahead() -> None:
    machine = SimulatedMachine({f"s3://b/{number}": Simulated([0.1]) for number in range(40)}, answer_s=90.0)
    begun_by(machine, 50.0, pages_in_flight=2)
    assert len(machine.opened) in (2 + 8, 2 + 9)


def test_behind_a_document_that_takes_long_to_open_as_many_are_opened_as_pages_may_be_in_flight() -> None:
    slow = Simulated([0.1], open_s=50.0)
    machine = machine_with(slow, *[Simulated([0.1])] * 40)
    assert begun_by(machine, 40.0, limit=30) == {}
    assert len(machine.opened) == 8, "until the model is loaded, four for each worker"
    machine = machine_with(Simulated([0.1]), slow, *[Simulated([0.1])] * 40)
    begun_by(machine, 40.0, limit=30)
    assert len(machine.opened) == 1 + 6


def test_documents_behind_the_rows_that_may_wait_to_be_released_are_not_opened() -> None:
    machine = machine_with(Simulated([50.0]), *[Simulated([0.1])] * 40)
    begun_by(machine, 40.0, max_unreleased=4)
    assert len(machine.opened) in (4, 5)


# How much is looked at


def test_what_is_looked_at_for_a_row_is_bounded_however_many_documents_have_cost_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_looks, is_costly = 0, DocumentRun.is_costly.fget  # type: ignore[attr-defined]

    def counted(run: DocumentRun) -> bool:
        nonlocal num_looks
        num_looks += 1
        return bool(is_costly(run))

    monkeypatch.setattr(DocumentRun, "is_costly", property(counted))
    assert len(simulate(*[Simulated([0.1], open_s=5.0)] * 200)) == 200
    assert num_looks < 200 * 20
