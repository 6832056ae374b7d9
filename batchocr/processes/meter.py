"""An engine's counts as they grow, and how long its device was busy."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace

from batchocr.processes.counts import Counts, Stage, sum_of

_WINDOW = 4096


class BusyTime:
    """How long a device was busy, when its work overlaps and is reported out of order: the union of spans.

    A span may be reported late, as long as fewer than 4,096 separate spans follow it.
    """

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


class Meter(Counts):
    """Counts the work of an engine and its device. Belongs to one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.device_busy = BusyTime()

    def add_on_device(
        self, stage: Stage, begin_s: float, end_s: float, *, items: int, limit: float, batches: int = 1
    ) -> None:
        """Count work that kept the device busy from begin_s to end_s, on the device's clock."""
        self.add(stage, end_s - begin_s, items=items, batches=batches, limit=limit)
        self.device_busy.add(begin_s, end_s)

    def queue_depth(self, tokens: int) -> None:
        """Sample how many image tokens wait in the embedding queue."""
        self.queue_samples += 1
        self.queue_token_sum += tokens
        self.queue_max_tokens = max(self.queue_max_tokens, tokens)

    def counts(self, *, peak_device_bytes: int = 0) -> Counts:
        """A copy of all that has been counted so far."""
        return replace(sum_of([self]), busy_s=self.device_busy.total_s, peak_device_bytes=peak_device_bytes)
