"""What a replay says of an engine's speed."""

from __future__ import annotations

import pytest

from benchmarks.replay import Replayed, Work


def _replayed(ends: list[tuple[float, int]], *, pages: int) -> Replayed:
    """A replay whose requests were answered at these times, in s, each with this many patches."""
    work = tuple(Work(patches, patches // 4, patches // 4 + 30, 10) for _, patches in ends)
    return Replayed(ends[-1][0], pages, work, tuple(end_s for end_s, _ in ends))


def test_the_steady_rate_leaves_out_the_ramps_at_both_ends() -> None:
    # Two pages' worth of patches a second from 10 s to 15 s, after a slow start and before a slow end.
    steady = [(10 + step / 4, 50) for step in range(21)]
    replayed = _replayed([(9, 150), *steady, (30, 300)], pages=15)
    assert replayed.pages_per_second == 0.5
    assert replayed.steady_pages_per_second == pytest.approx(2)


def test_requests_answered_by_one_step_count_together() -> None:
    replayed = _replayed([(1, 10), (2, 20), (2, 20), (4, 30), (4, 10), (5, 10)], pages=10)
    assert replayed.steady_pages_per_second == pytest.approx(10 * 40 / 100 / 2)


def test_there_is_no_steady_rate_where_all_end_at_once_or_nobody_noted_when() -> None:
    assert _replayed([(3, 10), (3, 10)], pages=2).steady_pages_per_second is None
    assert Replayed(3, 2, (Work(10, 4, 30, 10),)).steady_pages_per_second is None
