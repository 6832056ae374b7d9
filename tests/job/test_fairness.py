"""What a document costs: at most its share, in all and at any time. With workers and a clock that are simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import cycle

import pytest

from batchocr.job.document_run import DocumentRun, DocumentState
from tests.support.simulated import CRASHES, DAMAGED, HANGS, POST_S, Row, Simulated, simulate

TIMEOUT_S = 60.0
SOUND = [Simulated([0.1] * 3)] * 10
HOSTILE = {
    "every fourth page hangs": Simulated([HANGS, 0.01, 0.01, 0.01] * 100),
    "every page hangs": Simulated([HANGS] * 400),
    "every page hangs, behind a few that do not": Simulated([0.1] * 7 + [HANGS] * 100),
    "every page crashes": Simulated([CRASHES] * 400),
    "every page is slow": Simulated([12.0] * 200),
    "every page is almost too slow": Simulated([59.0] * 200),
    "it hangs when it is opened": Simulated([0.1], open_s=HANGS),
    "a thousand pages, none of which is there": Simulated([0.001] * 1000, problem=DAMAGED),
    "a thousand sound pages": Simulated([0.1] * 1000),
}


def last_s(rows: Sequence[Row], first_document: int) -> float:
    """When the last row of the documents from this one on was finished."""
    return max(row.at_s for row in rows if row.key.document >= first_document)


@pytest.mark.parametrize(("hostile", "workers"), list(zip(HOSTILE, cycle((2, 3, 8)))))
def test_ten_sound_documents_behind_a_hostile_one_are_read_within_twice_their_own_time(
    hostile: str, workers: int
) -> None:
    machine = {"workers": workers, "pages_in_flight": 2 * workers + 4}
    own_s = last_s(simulate(*SOUND, **machine), 0)
    rows = simulate(HOSTILE[hostile], *SOUND, **machine)
    assert last_s(rows, 1) <= 2 * own_s
    assert {row.result.status for row in rows if row.key.document >= 1} == {"ok"}
    assert len(rows) == len(Counter(row.key for row in rows)) == 30 + len(HOSTILE[hostile].pages)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_with_one_worker_they_wait_for_what_it_has_been_given_and_no_longer(hostile: str) -> None:
    own_s = last_s(simulate(*SOUND, workers=1), 0)
    rows = simulate(HOSTILE[hostile], *SOUND, workers=1)
    assert last_s(rows, 1) <= 2 * own_s + 3 * TIMEOUT_S  # half of the pages in flight are three


@pytest.mark.parametrize(("hostile", "workers"), list(zip(HOSTILE, cycle((1, 2)))))
def test_a_document_costs_a_few_timeouts_and_what_its_steps_may_take(hostile: str, workers: int) -> None:
    rows = simulate(HOSTILE[hostile], workers=workers)
    num_steps = 3 * sum(row.result.attempts for row in rows)
    in_flight_s = 6 * TIMEOUT_S
    assert last_s(rows, 0) <= 6 * TIMEOUT_S + num_steps * TIMEOUT_S / 20 + in_flight_s
    assert last_s(rows, 0) < 30 * 60


def test_a_document_that_cannot_be_opened_has_its_row_at_once_though_others_wait() -> None:
    rows = simulate(*[HOSTILE["it hangs when it is opened"]] * 4, workers=1)
    assert [row.result.status for row in rows] == ["failed"] * 4
    assert rows[0].at_s < 3 * TIMEOUT_S and rows[1].at_s < 5 * TIMEOUT_S


def test_a_document_that_is_given_up_has_a_row_for_each_page_that_says_so() -> None:
    rows = simulate(HOSTILE["every fourth page hangs"])
    assert sorted(row.key.page_index or 0 for row in rows) == list(range(400))
    results = [row.result for row in rows]
    not_tried = [result for result in results if "not tried: " in (result.error_message or "")]
    assert {(result.status, result.error_kind, result.attempts) for result in not_tried} == {("failed", "timeout", 0)}
    assert len(not_tried) > 375
    hung = "it took longer than 60 s to render (--page-timeout)"
    assert 3 <= Counter(result.error_message for result in results)[hung] <= 4, "the pages that hung say why"


def test_a_few_bad_pages_in_a_long_document_cost_no_other_page() -> None:
    pages = [CRASHES if index % 50 == 7 else 0.1 for index in range(1000)]
    status = Counter(row.result.status for row in simulate(Simulated(pages), *SOUND))
    assert status == {"ok": 980 + 30, "failed": 20}


def test_a_long_document_of_heavy_pages_is_read_in_full() -> None:
    rows = simulate(Simulated([TIMEOUT_S / 20 - 0.1] * 1000))
    assert {row.result.status for row in rows} == {"ok"}


def test_sound_documents_of_any_size_keep_all_workers_busy() -> None:
    documents = [Simulated([0.1] * count) for count in (300, 1, 40, 1, 1, 500, 2, 1, 7, 100)]
    work_s = sum(len(document.pages) * (0.1 + 2 * POST_S) + 0.01 for document in documents)
    assert last_s(simulate(*documents, workers=2), 0) < 1.03 * work_s / 2


def test_a_document_that_is_alone_has_all_workers() -> None:
    rows = simulate(Simulated([0.1] * 300), workers=4, pages_in_flight=12)
    assert last_s(rows, 0) < 1.05 * 300 * (0.1 + 2 * POST_S) / 4


@pytest.mark.parametrize("hostile", HOSTILE)
def test_the_limit_means_the_first_rows_of_the_input(hostile: str) -> None:
    rows = simulate(HOSTILE[hostile], *SOUND, limit=12)
    num_hostile = 1 if hostile == "it hangs when it is opened" else 12
    expected = [(0, index if num_hostile == 12 else None) for index in range(num_hostile)]
    expected += [(1 + index // 3, index % 3) for index in range(12 - num_hostile)]
    assert sorted((row.key.document, row.key.page_index) for row in rows) == expected


@pytest.mark.parametrize("hostile", HOSTILE)
def test_rows_that_have_to_come_in_order_all_come(hostile: str) -> None:
    rows = simulate(*SOUND[:5], HOSTILE[hostile], *SOUND[5:], HOSTILE[hostile], max_unreleased=24)
    assert len(rows) == 30 + 2 * len(HOSTILE[hostile].pages)


def run_of(bytes_per_page: float) -> DocumentRun:
    return DocumentRun(0, DocumentState(page_count=10, size=round(10 * bytes_per_page)), TIMEOUT_S)


def steps_until_given_up(seconds: float, bytes_per_page: float) -> int | None:
    """How many such steps a document may take; None if it may take 10,000."""
    run = run_of(bytes_per_page)
    for count in range(10_000):
        if run.given_up:
            return count
        run.charge_step(seconds)
    return None


def test_a_document_of_small_and_slow_pages_is_given_up_and_one_of_large_pages_read_to_its_end() -> None:
    assert steps_until_given_up(2.9, 0) is None
    assert steps_until_given_up(12, 50) in (40, 41)
    assert steps_until_given_up(12, 5e6) is None
    assert steps_until_given_up(59, 5e6) == 11


def test_quick_steps_make_good_for_lost_workers_no_faster_where_pages_are_large() -> None:
    for bytes_per_page in (0.0, 5e6):
        run = run_of(bytes_per_page)
        run.charge(1.0, "crashed")
        for _ in range(19):
            run.charge_step(0.0)
        assert run.is_costly
