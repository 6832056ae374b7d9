"""Counters of a run in progress: the work of each stage, and what became of each item.

The engine thread and the main thread each count into their own Meter, so counting needs no lock; the run combines the
two when the engine thread has ended.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

from batchocr.busy_time import BusyTime
from batchocr.data import ErrorKind, PageResult, Status

Stage = Literal["open", "render", "preprocess", "vit", "prefill", "decode", "post-process", "write"]

STAGES: tuple[Stage, ...] = get_args(Stage)
WORKER_STAGES: tuple[Stage, ...] = ("open", "render", "post-process")
DEVICE_STAGES: tuple[Stage, ...] = ("preprocess", "vit", "prefill", "decode")


@dataclass(slots=True)
class StageCount:
    """What a stage has done. The last two count only batches that have a limit."""

    busy_s: float = 0.0
    batches: int = 0
    items: int = 0
    limited_items: int = 0
    limit_sum: float = 0.0


class Meter:
    """Counts work as it is done. Belongs to one thread."""

    def __init__(self) -> None:
        self.stages: dict[Stage, StageCount] = {stage: StageCount() for stage in STAGES}
        self.patches = 0
        self.model_flop = 0.0
        self.batches_halved: Counter[Stage] = Counter()
        self.sequences_put_back = 0
        self.starved_s = 0.0
        self.device_busy = BusyTime()
        self.queue_samples = 0
        self.queue_token_sum = 0
        self.queue_max_tokens = 0

    def add(
        self, stage: Stage, seconds: float, *, items: int = 1, batches: int = 1, limit: float | None = None
    ) -> None:
        """Count work done. limit: how many items the batch could have held under the limit it came closest to."""
        count = self.stages[stage]
        count.busy_s += seconds
        count.items += items
        count.batches += batches
        if limit is not None:
            count.limited_items += items
            count.limit_sum += limit

    def add_patches(self, patches: int) -> None:
        """Count patches that the ViT has encoded."""
        self.patches += patches

    def add_flop(self, flop: float) -> None:
        """Count floating-point operations of the model."""
        self.model_flop += flop

    def halve_batch(self, stage: Stage) -> None:
        """Count a batch that did not fit into the device's memory."""
        self.batches_halved[stage] += 1

    def put_back(self, sequences: int) -> None:
        """Count sequences that lost their KV blocks to others and have to be prefilled again."""
        self.sequences_put_back += sequences

    def starved(self, seconds: float) -> None:
        """Count time during which the engine had no requests."""
        self.starved_s += seconds

    def add_on_device(self, stage: Stage, begin_s: float, end_s: float, *, items: int, limit: float) -> None:
        """Count a batch that kept the device busy from begin_s to end_s, on the device's clock."""
        self.add(stage, end_s - begin_s, items=items, limit=limit)
        self.device_busy.add(begin_s, end_s)

    def queue_depth(self, tokens: int) -> None:
        """Sample how many image tokens wait in the embedding queue."""
        self.queue_samples += 1
        self.queue_token_sum += tokens
        self.queue_max_tokens = max(self.queue_max_tokens, tokens)

    def absorb(self, other: Meter) -> None:
        """Add what another thread counted, once that thread has ended. Only one of the two may know the device."""
        for stage, theirs in other.stages.items():
            ours = self.stages[stage]
            ours.busy_s += theirs.busy_s
            ours.batches += theirs.batches
            ours.items += theirs.items
            ours.limited_items += theirs.limited_items
            ours.limit_sum += theirs.limit_sum
        self.patches += other.patches
        self.model_flop += other.model_flop
        self.batches_halved += other.batches_halved
        self.sequences_put_back += other.sequences_put_back
        self.starved_s += other.starved_s
        self.device_busy = max(self.device_busy, other.device_busy, key=lambda busy: busy.total_s)
        self.queue_samples += other.queue_samples
        self.queue_token_sum += other.queue_token_sum
        self.queue_max_tokens = max(self.queue_max_tokens, other.queue_max_tokens)


@dataclass(slots=True)
class Ledger:
    """What became of the items. The first three are counted where the input is walked through, not here.

    documents_not_opened: documents for which a run that ended early cannot say how many items they hold.
    """

    documents: int = 0
    documents_not_opened: int = 0
    found: int = 0
    already_done: int = 0
    by_status: Counter[Status] = field(default_factory=Counter)
    errors: Counter[ErrorKind] = field(default_factory=Counter)
    pages_read: int = 0
    image_tokens: int = 0
    output_tokens: int = 0

    def add_result(self, result: PageResult) -> None:
        """Count an item that this run has dealt with."""
        self.by_status[result.status] += 1
        if result.error_kind is not None:
            self.errors[result.error_kind] += 1
        if result.status in ("ok", "degraded"):
            self.pages_read += 1
            self.image_tokens += result.image_tokens
            self.output_tokens += result.output_tokens

    def add_done(self, status: Status, error_kind: ErrorKind | None = None) -> None:
        """Count an item that an earlier run has dealt with for good."""
        self.by_status[status] += 1
        self.already_done += 1
        if error_kind is not None:
            self.errors[error_kind] += 1
