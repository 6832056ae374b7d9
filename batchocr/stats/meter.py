"""Counters of a run in progress: the work of each stage, and what became of each item.

The run counts the stages of the host, each engine those of its device.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from batchocr.data import ErrorKind, PageResult, Status
from batchocr.stats.quality import Quality
from batchocr.wire.counts import DEVICE_STAGES, AnswerCounts, EngineCounts, Stage, StageCount

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


@dataclass(slots=True)
class Ledger:
    """What became of the items. The first four are counted where the input is walked through, not here.

    skipped_files: files in folders that are no documents, by suffix. documents_not_opened: documents for which a run
    that ended early cannot say how many items they hold. pages_copied: not read, as their rows were made from those of
    others. quality: of the pages read or copied; once the table is being built, of all its rows.
    """

    documents: int = 0
    skipped_files: Mapping[str, int] = field(default_factory=dict)
    documents_not_opened: int = 0
    found: int = 0
    already_done: int = 0
    by_status: Counter[Status] = field(default_factory=Counter)
    errors: Counter[ErrorKind] = field(default_factory=Counter)
    pages_read: int = 0
    pages_copied: int = 0
    documents_copied: int = 0
    answers: AnswerCounts = field(default_factory=AnswerCounts)
    image_tokens: int = 0
    output_tokens: int = 0
    quality: Quality = field(default_factory=Quality)

    def add_result(self, result: PageResult) -> None:
        """Count an item that this run has dealt with."""
        self.by_status[result.status] += 1
        if result.error_kind is not None:
            self.errors[result.error_kind] += 1
        if result.status in ("ok", "degraded"):
            self.quality.add(result)
            if result.attempts == 0:
                self.pages_copied += 1
                return
            self.pages_read += 1
            self.image_tokens += result.image_tokens
            self.output_tokens += result.output_tokens

    def add_done(self, status: Status, error_kind: ErrorKind | None = None) -> None:
        """Count an item that an earlier run has dealt with for good."""
        self.by_status[status] += 1
        self.already_done += 1
        if error_kind is not None:
            self.errors[error_kind] += 1
