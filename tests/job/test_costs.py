"""When a document is given up: for what it costs beyond what pages of its size may take."""

from __future__ import annotations

from batchocr.job.attempts import Costs

TIMEOUT_S = 60.0


def steps_until_given_up(seconds: float, bytes_per_page: float) -> int | None:
    """How many such steps a document may take; None if it may take 10,000."""
    costs = Costs(TIMEOUT_S)
    for count in range(10_000):
        if costs.given_up(0):
            return count
        costs.add_step(0, seconds, bytes_per_page)
    return None


def test_a_document_of_small_and_slow_pages_is_given_up_and_one_of_large_pages_read_to_its_end() -> None:
    assert steps_until_given_up(2.9, 0) is None
    assert steps_until_given_up(12, 50) in (40, 41)
    assert steps_until_given_up(12, 5e6) is None
    assert steps_until_given_up(59, 5e6) == 11


def test_quick_steps_make_good_for_lost_workers_no_faster_where_pages_are_large() -> None:
    for bytes_per_page in (0.0, 5e6):
        costs = Costs(TIMEOUT_S)
        costs.add_lost_worker(0, "crashed")
        for _ in range(19):
            costs.add_step(0, 0.0, bytes_per_page)
        assert costs.has_cost(0)
