"""Rows for a caller's loop: in input order, with a bounded number of them waiting."""

from __future__ import annotations

from collections.abc import Iterator

from batchocr.data import Document, PageResult
from batchocr.job.intake import Intake
from batchocr.job.ordered import _in_order
from batchocr.job.row_queue import RowKey
from batchocr.processes.messages import Opened

NUM_PAGES = 20
MAX_UNRELEASED = 6


def make_intake() -> Intake:
    intake = Intake([Document("/a.pdf", "a.pdf")], None, None, limit=None, max_unreleased=MAX_UNRELEASED)
    assert intake.next_document() == 0
    intake.opened(0, Opened(0, NUM_PAGES, "id", 1, 1))
    return intake


def next_row(intake: Intake) -> RowKey | None:
    key = next(intake.queue.candidates(), None)
    if key is not None:
        intake.queue.take(key)
    return key


def finished(key: RowKey) -> tuple[RowKey, PageResult]:
    return key, PageResult("a.pdf", key.page_index, "ok")


def slow_at_the_first(intake: Intake, num_waiting: list[int]) -> Iterator[tuple[RowKey, PageResult]]:
    """Finish the first page only when no other page may be begun; then do the same with the remaining pages."""
    while (first := next_row(intake)) is not None:
        num_waiting.append(0)
        while (key := next_row(intake)) is not None:
            num_waiting[-1] += 1
            yield finished(key)
        yield finished(first)


def test_rows_behind_a_slow_page_wait_up_to_a_bound_and_all_come_in_order() -> None:
    intake, num_waiting = make_intake(), list[int]()
    rows = _in_order(intake, slow_at_the_first(intake, num_waiting))
    assert [row.page_index for row in rows] == list(range(NUM_PAGES))
    assert num_waiting == [MAX_UNRELEASED - 1] * 3 + [1]


def test_rows_that_a_stop_left_behind_a_gap_come_last_and_in_order() -> None:
    intake = make_intake()
    keys = [key for _ in range(5) if (key := next_row(intake)) is not None]
    rows = _in_order(intake, (finished(keys[index]) for index in (0, 4, 2)))
    assert [row.page_index for row in rows] == [0, 2, 4]
