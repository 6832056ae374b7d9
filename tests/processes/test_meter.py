"""The union of spans, in whatever order they arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from batchocr.processes.meter import BusyTime

SPANS = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)), max_size=60)


@given(SPANS)
def test_time_counts_once_however_many_streams_were_busy(spans: list[tuple[int, int]]) -> None:
    busy = BusyTime()
    for begin, length in spans:
        busy.add(float(begin), float(begin + length))
    covered = {second for begin, length in spans for second in range(begin, begin + length)}
    assert busy.total_s == len(covered)


def test_a_long_run_keeps_a_bounded_number_of_spans_and_the_whole_sum() -> None:
    busy = BusyTime()
    for step in range(10_000):
        busy.add(float(step), step + 0.5)
    assert busy.total_s == 5000
    assert len(busy._begins) <= 4096
