"""How long a device was busy, when its work overlaps and is reported out of order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

_WINDOW = 4096


class BusyTime:
    """Adds up the union of spans. A span may be reported late, as long as fewer than 4,096 separate spans follow it."""

    def __init__(self) -> None:
        self._settled_s = 0.0
        self._begins: list[float] = []
        self._ends: list[float] = []

    def add(self, begin_s: float, end_s: float) -> None:
        """Count a span of time, in seconds since any fixed moment."""
        # All spans that touch this one are merged into it.
        first = bisect_left(self._ends, begin_s)
        last = bisect_right(self._begins, end_s)
        if first < last:
            begin_s = min(begin_s, self._begins[first])
            end_s = max(end_s, self._ends[last - 1])
        self._begins[first:last], self._ends[first:last] = [begin_s], [end_s]
        if len(self._begins) > _WINDOW:
            self._settled_s += self._ends.pop(0) - self._begins.pop(0)

    @property
    def total_s(self) -> float:
        return self._settled_s + sum(self._ends) - sum(self._begins)
