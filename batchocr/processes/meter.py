"""Counters of the work of each stage.

The run counts the stages of the host, each engine those of its device.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import get_args

from batchocr.processes.counts import DEVICE_STAGES, EngineCounts, Stage, StageCount

STAGES: tuple[Stage, ...] = get_args(Stage)
WORKER_STAGES: tuple[Stage, ...] = ("open", "render", "post-process")
HOST_STAGES: tuple[Stage, ...] = (*WORKER_STAGES, "write")
_WINDOW = 4096


class StageCounter:
    """Counts the work of stages as it is done. Belongs to one thread."""

    def __init__(self) -> None:
        self.stages: dict[Stage, StageCount] = {stage: StageCount() for stage in STAGES}

    def add(self, stage: Stage, seconds: float, *, items: int = 1, batches: int = 1, limit: float = 0.0) -> None:
        """Count work done. limit: how many items the batch could have held under the limit it came closest to."""
        count = self.stages[stage]
        count.busy_s += seconds
        count.items += items
        count.batches += batches
        count.limit_sum += limit


class HostCounter(StageCounter):
    """Counts the work of the run's own thread and of its workers. blocks: those that the model has read."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = 0


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


class Meter(StageCounter):
    """Counts the work of an engine and its device."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = 0
        self.model_flop = 0.0
        self.batches_halved: Counter[Stage] = Counter()
        self.preemptions = 0
        self.starved_s = 0.0
        self.device_busy = BusyTime()
        self.queue_samples = 0
        self.queue_token_sum = 0
        self.queue_max_tokens = 0

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

    def counts(self, *, peak_device_bytes: int = 0) -> EngineCounts:
        """All that has been counted so far."""
        return EngineCounts(
            stages={stage: self.stages[stage] for stage in DEVICE_STAGES},
            patches=self.patches,
            model_flop=self.model_flop,
            busy_s=self.device_busy.total_s,
            starved_s=self.starved_s,
            batches_halved=dict(self.batches_halved),
            preemptions=self.preemptions,
            queue_samples=self.queue_samples,
            queue_token_sum=self.queue_token_sum,
            queue_max_tokens=self.queue_max_tokens,
            peak_device_bytes=peak_device_bytes,
        )
