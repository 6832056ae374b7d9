"""Which document is opened next and which row is begun next: in input order, ahead of time, and nothing twice."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from batchocr.data import Document, Failure, Status
from batchocr.job.document_run import DocumentRun, RowKey
from batchocr.job.row_plan import RowPlan
from batchocr.job.shortfalls import documents_without_rows
from batchocr.processes.messages import Opened
from batchocr.storage.listing import Documents
from batchocr.tables.known import KnownRow, KnownRows, Overlay
from tests.support.given_rows import GivenRows, known_rows


@dataclass
class Finished:
    """Stands for the journal: rows of earlier runs, by source."""

    by_source: dict[str, tuple[KnownRow, ...]] = field(default_factory=dict)

    @property
    def known(self) -> Overlay:
        known = Overlay(KnownRows())
        for source, rows in self.by_source.items():
            for row in rows:
                known.put(source, row)
        return known


def documents(*names: str) -> list[Document]:
    return [Document(path=f"/nowhere/{name}", source=name) for name in names]


def make_plan(
    found: Sequence[Document], spec: str | None = None, finished: Finished | None = None, **options: Any
) -> RowPlan:
    return RowPlan(Documents(found), spec, finished, limit=options.pop("limit", None), **options)


def open_next(plan: RowPlan, page_count: int) -> None:
    """Open the next document, with this many pages."""
    index = plan.next_document()
    assert index is not None
    plan.opened(index, Opened(0, page_count, f"id-{index}", 100, 5))


def all_rows(plan: RowPlan) -> list[tuple[int, int | None]]:
    """The rows of the output."""
    return [(key.document, key.page_index) for key in known_rows(plan)]


def row(
    page_index: int | None,
    *,
    status: Status = "ok",
    doc_id: str | None = "id-0",
    page_count: int | None = 3,
    file_bytes: int | None = None,
    file_mtime_ns: int | None = None,
) -> KnownRow:
    return KnownRow(page_index, status, doc_id, page_count, 1, -1, file_bytes, file_mtime_ns)


def test_a_document_that_takes_long_to_open_does_not_hold_up_those_behind_it() -> None:
    plan = make_plan(documents("a", "b", "c"))
    reading = GivenRows(plan)
    assert [plan.next_document() for _ in range(3)] == [0, 1, 2]
    plan.opened(2, Opened(0, 2, "c", 1, 1))
    assert reading.next() == RowKey(2, 0)
    plan.opened(0, Opened(0, 1, "a", 1, 1))
    assert reading.remaining() == [(0, 0), (2, 1)]


@pytest.mark.parametrize("options", [{"limit": 10}, {"max_unreleased": 10}])
def test_where_their_order_matters_rows_are_handed_out_in_input_order_however_the_documents_open(
    options: dict[str, int],
) -> None:
    plan = make_plan(documents("a", "b", "c"), **options)
    reading = GivenRows(plan)
    indices = [plan.next_document() for _ in range(3)]
    assert indices == [0, 1, 2]
    assert plan.next_document() is None
    plan.opened(2, Opened(0, 1, "c", 1, 1))
    assert reading.next() is None
    plan.opened(0, Opened(0, 2, "a", 1, 1))
    assert reading.end_all() == [(0, 0), (0, 1)]
    assert not plan.is_complete
    plan.opened(1, Opened(0, 1, "b", 1, 1))
    assert reading.end_all() == [(1, 0), (2, 0)]
    assert plan.is_complete


def test_the_limit_counts_over_documents_and_later_ones_are_not_opened() -> None:
    plan = make_plan(documents("a", "b", "c"), limit=3)
    reading = GivenRows(plan)
    open_next(plan, 2)
    assert reading.end_all() == [(0, 0), (0, 1)]
    open_next(plan, 2)
    assert reading.end_all() == [(1, 0)]
    assert plan.is_complete
    assert plan.next_document() is None
    assert all_rows(plan) == [(0, 0), (0, 1), (1, 0)]
    assert plan.all_planned


def test_the_limit_means_the_same_rows_when_some_are_done_already() -> None:
    finished = Finished({"a": (row(1, page_count=2),)})
    plan = make_plan(documents("a", "b"), finished=finished, limit=3)
    reading = GivenRows(plan)
    open_next(plan, 2)
    open_next(plan, 2)
    assert reading.remaining() == [(0, 0), (1, 0)]
    assert all_rows(plan) == [(0, 0), (0, 1), (1, 0)]
    assert plan.num_ended == 1


def test_a_document_known_to_be_missing_is_a_row_and_never_opened() -> None:
    found = [*documents("a"), Document("/nowhere/b", "b", Failure("not_found", "b does not exist")), *documents("c")]
    plan = make_plan(found)
    assert [plan.next_document(), plan.next_document(), plan.next_document()] == [0, 2, None]
    assert plan.states[1].problem == Failure("not_found", "b does not exist")
    assert plan.states[1].rows == [None]


def test_a_document_that_cannot_be_opened_is_one_row_and_known_by_its_size_and_time(tmp_path: Path) -> None:
    plan = make_plan(file_with_rows(tmp_path)[0])
    reading = GivenRows(plan)
    assert plan.next_document() == 0
    plan.cannot_open(0, Failure("damaged", "no trailer"), doc_id="id-0")
    assert reading.remaining() == [(0, None)]
    state = plan.states[0]
    assert (state.problem, state.doc_id) == (Failure("damaged", "no trailer"), "id-0")
    assert {"file_bytes": state.size, "file_mtime_ns": state.mtime_ns} == as_it_was(tmp_path)


def test_a_page_spec_picks_pages_of_each_document_among_those_that_it_names() -> None:
    first, *others = documents("a", "b", "c")
    plan = make_plan([replace(first, pages=frozenset((0, 2, 5, 11))), *others], spec="1-2,6-r1")
    reading = GivenRows(plan)
    for page_count in (9, 6, 0):
        open_next(plan, page_count)
    assert reading.end_all() == [(0, 0), (0, 5), (1, 0), (1, 1), (1, 5), (2, None)]
    assert plan.is_complete


def test_no_documents_are_no_rows() -> None:
    plan = make_plan([])
    reading = GivenRows(plan)
    assert (plan.next_document(), reading.next()) == (None, None)
    assert plan.is_complete
    assert plan.all_planned


def test_what_a_lost_worker_held_comes_before_all_others() -> None:
    plan = make_plan(documents("a"))
    reading = GivenRows(plan)
    open_next(plan, 4)
    first, second = reading.next(), reading.next()
    assert first is not None
    assert second is not None
    assert reading.lose(second)
    assert reading.lose(first)
    assert reading.end_all() == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert plan.is_complete


def test_a_document_that_has_cost_something_comes_last_until_it_has_made_good_for_that() -> None:
    plan = make_plan(documents("a", "b"))
    reading = GivenRows(plan)
    open_next(plan, 4)
    open_next(plan, 2)
    first = reading.next()
    assert first == RowKey(0, 0)
    assert reading.lose(first, "timeout")
    assert reading.next() == RowKey(1, 0)
    for _ in range(20):
        reading.charge_step(0, 0.0)
    assert reading.end_all() == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1)]


def test_a_document_that_has_cost_a_worker_is_read_page_by_page() -> None:
    plan = make_plan(documents("a"))
    reading = GivenRows(plan)
    open_next(plan, 3)
    first = reading.next()
    assert first is not None
    assert reading.lose(first, "timeout")
    assert reading.next() == first
    assert reading.next() is None
    reading.release(first)
    assert reading.next() == RowKey(0, 1)


def file_with_rows(folder: Path, *rows: KnownRow) -> tuple[list[Document], Finished]:
    """A document of 4 bytes, and its rows from an earlier run."""
    (folder / "a.pdf").write_bytes(b"1234")
    return [Document(str(folder / "a.pdf"), "a.pdf")], Finished({"a.pdf": rows})


def as_it_was(folder: Path) -> dict[str, int]:
    return {"file_bytes": 4, "file_mtime_ns": (folder / "a.pdf").stat().st_mtime_ns}


FAILED = row(None, status="failed", doc_id=None, page_count=None)


@pytest.mark.parametrize(
    ("rows", "options", "begun", "of_the_output"),
    [
        pytest.param([row(0), row(2, status="degraded")], {}, [1], [0, 1, 2], id="done rows are not begun"),
        pytest.param([row(0, status="failed"), row(1), row(2)], {}, [0], [0, 1, 2], id="a failed page is begun again"),
        pytest.param([row(None, status="skipped", page_count=0)], {}, [], [None], id="no pages"),
        pytest.param(
            [row(0), row(1, doc_id="old", file_bytes=9, file_mtime_ns=1)], {}, [1, 2], [0, 1, 2], id="other content"
        ),
        pytest.param([row(0), row(1)], {"spec": "2-3"}, [2], [1, 2], id="rows of pages that are not asked for"),
        pytest.param([row(0, status="failed"), row(1)], {"retry_failed": False}, [2], [0, 1, 2], id="no retries"),
        pytest.param([FAILED], {"retry_failed": False}, [], [None], id="no retries, and never opened"),
        pytest.param(
            [FAILED, row(0, page_count=2), row(1, status="failed", page_count=2)],
            {"retry_failed": False},
            [],
            [0, 1],
            id="no retries, and opened once",
        ),
    ],
)
def test_an_unchanged_document_is_not_opened_and_only_what_is_missing_is_begun(
    tmp_path: Path,
    rows: list[KnownRow],
    options: dict[str, Any],
    begun: list[int | None],
    of_the_output: list[int | None],
) -> None:
    found, finished = file_with_rows(tmp_path)
    file = as_it_was(tmp_path)
    finished.by_source["a.pdf"] = tuple(each if each.file_bytes else replace(each, **file) for each in rows)
    plan = make_plan(found, finished=finished, **options)
    reading = GivenRows(plan)
    assert plan.next_document() is None
    assert reading.remaining() == [(0, page) for page in begun]
    assert all_rows(plan) == [(0, page) for page in of_the_output]
    assert plan.num_ended == len(of_the_output) - len(begun)


@pytest.mark.parametrize(
    ("row", "page_count", "begun"),
    [
        pytest.param(row(0, file_bytes=4, file_mtime_ns=1), 3, [1, 2], id="touched: it keeps the rows of its content"),
        pytest.param(row(0), 3, [1, 2], id="taken over from a table: it keeps the rows of its content"),
        pytest.param(row(0, doc_id="before", file_bytes=4, file_mtime_ns=1), 2, [0, 1], id="other content"),
        pytest.param(row(None, status="failed", page_count=None), 2, [0, 1], id="failed as a whole"),
    ],
)
def test_a_document_that_may_have_changed_is_opened(
    tmp_path: Path, row: KnownRow, page_count: int, begun: list[int]
) -> None:
    found, finished = file_with_rows(tmp_path, row)
    plan = make_plan(found, finished=finished)
    reading = GivenRows(plan)
    open_next(plan, page_count)
    assert reading.remaining() == [(0, page) for page in begun]


def test_a_document_that_has_gone_is_opened_so_that_its_row_says_so() -> None:
    finished = Finished({"a": (row(0, file_bytes=4, file_mtime_ns=1),)})
    assert make_plan(documents("a"), finished=finished).next_document() == 0


def test_documents_known_to_have_none_of_the_pages_asked_for_are_listed_with_their_length() -> None:
    found = documents("short", "long", "empty", "unknown")
    plan = make_plan(found, spec="3-5")
    for page_count in (2, 3, 0):
        open_next(plan, page_count)
    assert documents_without_rows(plan) == {"short": 2}  # a document without pages has a row that says so


def test_of_many_unchanged_documents_a_hundred_are_looked_at_in_a_call(tmp_path: Path) -> None:
    found, finished = file_with_rows(tmp_path)
    finished.by_source["a.pdf"] = (row(0, page_count=1, **as_it_was(tmp_path)),)
    plan = make_plan(found * 150, finished=finished)
    assert plan.next_document() is None
    assert (plan.num_known, plan.num_ended, plan.is_complete) == (100, 100, False)
    assert plan.next_document() is None
    assert GivenRows(plan).remaining() == []
    assert plan.is_complete


def test_without_retries_a_touched_document_that_fails_again_keeps_its_row(tmp_path: Path) -> None:
    found, finished = file_with_rows(
        tmp_path, row(None, status="failed", page_count=None, file_bytes=4, file_mtime_ns=1)
    )
    plan = make_plan(found, finished=finished, retry_failed=False)
    reading = GivenRows(plan)
    assert plan.next_document() == 0
    plan.cannot_open(0, Failure("damaged", "no trailer"), doc_id="id-0")
    assert reading.remaining() == []


@pytest.mark.parametrize(("limit", "known"), [(None, "a0 a1 a2 c0 c1 c2"), (5, "a0 a1 a2"), (2, "a0 a1")])
def test_the_rows_known_so_far_are_those_of_opened_documents_that_belong_to_the_output(
    limit: int | None, known: str
) -> None:
    plan = make_plan(documents("a", "b", "c"), limit=limit)
    for expected in range(3):
        assert plan.next_document() == expected
    for index in (2, 0):
        plan.opened(index, Opened(0, 3, "0", 1, 1))
    assert " ".join(f"{'abc'[key.document]}{key.page_index}" for key in known_rows(plan)) == known
    assert (plan.num_planned, plan.num_left) == (6 if limit is None else limit, 6)


def num_kept() -> int:
    """How many documents schedulers remember."""
    return sum(type(each) is DocumentRun for each in gc.get_objects())


def test_a_document_whose_rows_have_ended_is_forgotten_whoever_asks() -> None:
    plan = make_plan(documents("a", "b"))
    reading = GivenRows(plan)
    open_next(plan, 1)
    open_next(plan, 1)
    before = num_kept()
    rows = [reading.next(), reading.next()]
    assert num_kept() == before + 2
    reading.worker.backlog = 1
    for key in rows:
        assert key is not None
        reading.release(key)
        reading.end(key)
    assert reading.next() is None
    assert num_kept() == before
