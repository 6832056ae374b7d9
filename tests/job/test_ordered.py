"""Rows for a caller's loop: in input order, with a bounded number of them waiting."""

from __future__ import annotations

from collections.abc import Iterator

from batchocr.data import Document, PageResult
from batchocr.job.document_run import RowKey
from batchocr.job.ordered import _in_order
from batchocr.job.row_plan import RowPlan
from batchocr.processes.messages import Opened
from batchocr.storage.listing import Documents
from tests.support.given_rows import GivenRows

NUM_PAGES = 20
MAX_UNRELEASED = 6


def make_plan() -> RowPlan:
    plan = RowPlan(Documents([Document("/a.pdf", "a.pdf")]), None, None, limit=None, max_unreleased=MAX_UNRELEASED)
    assert plan.next_document() == 0
    plan.opened(0, Opened(0, NUM_PAGES, "id", 1, 1))
    return plan


def finished(key: RowKey) -> tuple[RowKey, PageResult]:
    return key, PageResult("a.pdf", key.page_index, "ok")


def slow_at_the_first(plan: RowPlan, num_waiting: list[int]) -> Iterator[tuple[RowKey, PageResult]]:
    """Finish the first page only when no other page may be begun; then do the same with the remaining pages."""
    given = GivenRows(plan)
    while (first := given.next()) is not None:
        num_waiting.append(0)
        while (key := given.next()) is not None:
            num_waiting[-1] += 1
            yield finished(key)
        yield finished(first)


def test_rows_behind_a_slow_page_wait_up_to_a_bound_and_all_come_in_order() -> None:
    plan, num_waiting = make_plan(), list[int]()
    rows = _in_order(plan, slow_at_the_first(plan, num_waiting))
    assert [row.page_index for row in rows] == list(range(NUM_PAGES))
    assert num_waiting == [MAX_UNRELEASED - 1] * 3 + [1]


def test_rows_that_a_stop_left_behind_a_gap_come_last_and_in_order() -> None:
    plan = make_plan()
    rows = _in_order(plan, (finished(RowKey(0, page_index)) for page_index in (0, 4, 2)))
    assert [row.page_index for row in rows] == [0, 2, 4]
