"""The run's loop with workers and an engine that are simulated: what is begun, routed, begun again, ended."""

from __future__ import annotations

from typing import Any

import pytest

from batchocr.data import Document, PageResult
from batchocr.job import stop as stopping
from batchocr.job.pipeline import Pipeline
from batchocr.job.row_plan import RowPlan
from batchocr.job.stop import StopSwitch
from batchocr.processes.child import _killing
from batchocr.processes.counts import Counts
from batchocr.processes.questions import Questions
from batchocr.storage.listing import Documents
from tests.support.fake_engines import PatientEngines
from tests.support.simulated import CRASHES, HANGS, KILLED, OUT_OF_MEMORY, Simulated, SimulatedMachine, machine_with


def rows_of(machine: SimulatedMachine, pages_in_flight: int = 4) -> dict[int | None, PageResult]:
    """The rows of the only document, by page."""
    rows = list(machine.rows(pages_in_flight=pages_in_flight))
    assert {row.key.document for row in rows} == {0}
    by_page = {row.key.page_index: row.result for row in rows}
    assert len(by_page) == len(rows)
    return by_page


def test_the_answers_of_a_page_reach_it_in_the_order_of_its_questions() -> None:
    rows = rows_of(machine_with(Simulated([0.1] * 5), answer_s=0.2))
    assert {index: row.markdown for index, row in rows.items()} == {n: f"{n}? {n}A {n}B" for n in range(5)}
    assert {(row.status, row.ink_outside, row.text_layer_agreement) for row in rows.values()} == {("ok", 0.25, 0.5)}


def test_pages_are_read_from_the_version_of_the_file_that_was_opened() -> None:
    rows = rows_of(machine_with(Simulated([0.1] * 5)))
    assert {row.error_kind for row in rows.values()} == {None}, "a worker refuses any other version"


@pytest.mark.parametrize("pages_in_flight", [1, 3])
def test_no_more_pages_are_in_flight_than_are_allowed(pages_in_flight: int) -> None:
    machine = machine_with(Simulated([0.1] * 9), answer_s=1.0)
    assert len(rows_of(machine, pages_in_flight)) == 9
    assert machine.most_in_flight == pages_in_flight


def test_a_page_that_costs_a_worker_once_is_read_by_another() -> None:
    rows = rows_of(machine_with(Simulated([0.1, (CRASHES, 0.1), 0.1])))
    assert (rows[1].status, rows[1].attempts, rows[1].markdown) == ("ok", 2, "1? 1A 1B")


def test_pages_that_wait_for_a_question_of_one_whose_worker_is_lost_have_its_answer() -> None:
    machine, engines = machine_with(Simulated([0.1] * 6, asks_the_same=True), kills=[0.5]), PatientEngines()

    def tick() -> None:
        if machine.now() > 1:
            engines.answer()

    shared = Questions(engines)  # type: ignore[arg-type]
    rows = {row.key.page_index: row.result for row in machine.rows(pages_in_flight=4, engines=shared, tick=tick)}
    assert {(index, row.status, row.markdown) for index, row in rows.items()} == {
        (index, "ok", "? A B") for index in range(6)
    }
    assert engines.prompts == ["?", "a", "b"]
    assert rows[0].attempts == 2


def test_pages_that_wait_for_one_another_hold_up_no_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "GRACE_S", -1.0)
    machine, engines, stop = machine_with(Simulated([0.1] * 6, asks_the_same=True)), PatientEngines(), StopSwitch()

    def tick() -> None:
        if machine.now() > 1:
            stop.request("terminated")

    shared = Questions(engines)  # type: ignore[arg-type]
    assert list(machine.rows(pages_in_flight=4, stop=stop, engines=shared, tick=tick)) == []
    assert engines.prompts == ["?"]
    assert sorted(machine.begun) == [("/0", index) for index in range(4)], "of which three wait for the first"


def test_no_worker_has_begun_a_page_when_the_model_is_loaded() -> None:
    """Until it is loaded, a signal ends the run at once."""
    machine, in_flight = machine_with(Simulated([0.1] * 3)), list[int]()

    def load() -> tuple[Any, int]:
        in_flight.append(machine.num_in_flight())
        return machine, 4

    plan = RowPlan(Documents([Document("/0", "/0")]), None, None, limit=None)
    pipeline = Pipeline(plan, machine, Counts(), load, 60.0)
    assert len(list(pipeline.results(StopSwitch(), lambda: None))) == 3
    assert in_flight == [0]


def test_a_stop_begins_nothing_more_and_finishes_what_is_in_flight() -> None:
    machine, stop = machine_with(Simulated([0.1, 0.13] * 50)), StopSwitch()
    rows = machine.rows(pages_in_flight=4, stop=stop)
    next(rows)
    in_flight = machine.num_in_flight()
    stop.request("terminated")
    assert [row.result.status for row in rows] == ["ok"] * in_flight
    assert machine.begun.total() == 1 + in_flight < 100


def test_what_is_not_finished_within_the_grace_period_is_left_for_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "GRACE_S", -1.0)
    stop = StopSwitch()
    rows = machine_with(Simulated([0.1, HANGS, 0.1])).rows(stop=stop)
    assert [next(rows).key.page_index for _ in range(2)] == [0, 2]
    stop.request("terminated")
    assert list(rows) == []


def test_a_document_lost_while_it_is_opened_is_opened_again_however_many_wait_behind_it() -> None:
    documents = [Simulated([0.01])] * 60
    documents[4] = Simulated([0.01], open_s=(OUT_OF_MEMORY, 0.01))
    machine = machine_with(*documents, answer_s=0.3)  # when it is lost, the others are open, and those before it read
    assert len(list(machine.rows(pages_in_flight=4, limit=100))) == 60
    assert machine.num_retired == 1
    assert set(machine.opened.items()) == {(f"/{number}", 1 + (number == 4)) for number in range(60)}


def test_a_warning_names_the_first_object_whose_bytes_do_not_fit_its_etag(caplog: pytest.LogCaptureFixture) -> None:
    documents = [Simulated([0.1], doc_id=str(number), doubted=number > 0) for number in range(4)]
    assert {row.result.status for row in machine_with(*documents).rows()} == {"ok"}
    [said] = [record.getMessage() for record in caplog.records if "ETag" in record.getMessage()]
    assert said.startswith(("/1 does not fit its ETag", "/2 does not fit its ETag"))


def test_a_kill_by_the_system_for_want_of_memory_is_not_held_against_the_page_that_was_there() -> None:
    out_of_memory = _killing("worker", 3, 4)
    assert (out_of_memory.failure.kind, out_of_memory.killed) == ("out_of_memory", True)
    assert "most likely by the system for lack of memory" in out_of_memory.failure.message
    rows = rows_of(machine_with(Simulated([0.1, (KILLED, KILLED, KILLED, KILLED, 0.1), 0.1, 0.1])))
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows[1].attempts == 5
