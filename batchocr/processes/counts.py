"""What the run and its engines count while they work: sums that grow, so that those of several engines, or of one that
was replaced, can be added; and how many questions needed no engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

Stage: TypeAlias = Literal[
    "open", "render", "layout", "preprocess", "vit", "prefill", "decode", "post-process", "write"
]

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
DEVICE_STAGES: Final[tuple[Stage, ...]] = ("layout", "preprocess", "vit", "prefill", "decode")
WORKER_STAGES: Final[tuple[Stage, ...]] = ("open", "render", "post-process")
HOST_STAGES: Final[tuple[Stage, ...]] = (*WORKER_STAGES, "write")


@dataclass(slots=True)
class StageCount:
    """What a stage has done. limit_sum: how many items its batches could have held; 0 if they have no limit."""

    busy_s: float = 0.0
    batches: int = 0
    items: int = 0
    limit_sum: float = 0.0

    def add(self, other: StageCount) -> None:
        self.busy_s += other.busy_s
        self.batches += other.batches
        self.items += other.items
        self.limit_sum += other.limit_sum


@dataclass(slots=True)
class StageCounts:
    """What all stages have done."""

    stages: dict[Stage, StageCount] = field(default_factory=lambda: {stage: StageCount() for stage in STAGES})

    def add(self, stage: Stage, seconds: float, *, items: int = 1, batches: int = 1, limit: float = 0.0) -> None:
        """Count work done. limit: how many items the batch could have held under the limit it came closest to."""
        self.stages[stage].add(StageCount(seconds, batches, items, limit))


@dataclass(slots=True)
class HostCounts(StageCounts):
    """What the run's own thread and its workers have done. blocks: those that the model has read."""

    blocks: int = 0


@dataclass(slots=True)
class EngineCounts(StageCounts):
    """What an engine has done. busy_s: how long its device was busy with any stage. starved_s: how long it waited
    without a request. queue_…: samples of the image tokens in the embedding queue.
    peak_device_bytes: the most memory it held on a GPU; 0 on a CPU."""

    patches: int = 0
    model_flop: float = 0.0
    busy_s: float = 0.0
    starved_s: float = 0.0
    batches_halved: Counter[Stage] = field(default_factory=Counter)
    preemptions: int = 0
    queue_samples: int = 0
    queue_token_sum: int = 0
    queue_max_tokens: int = 0
    peak_device_bytes: int = 0


@dataclass(slots=True)
class AnswerCounts:
    """Questions of pages. asked: all. from_run, from_cache: how many of them were answered without an engine, because
    this run, or an earlier one, had asked the same. image_tokens, output_tokens: the tokens that this saved."""

    asked: int = 0
    from_run: int = 0
    from_cache: int = 0
    image_tokens: int = 0
    output_tokens: int = 0


def sum_of(counts: Iterable[EngineCounts]) -> EngineCounts:
    """What several engines have done together; of the peaks, the highest."""
    total = EngineCounts()
    for each in counts:
        for stage, count in each.stages.items():
            total.stages[stage].add(count)
        total.patches += each.patches
        total.model_flop += each.model_flop
        total.busy_s += each.busy_s
        total.starved_s += each.starved_s
        total.batches_halved += each.batches_halved
        total.preemptions += each.preemptions
        total.queue_samples += each.queue_samples
        total.queue_token_sum += each.queue_token_sum
        total.queue_max_tokens = max(total.queue_max_tokens, each.queue_max_tokens)
        total.peak_device_bytes = max(total.peak_device_bytes, each.peak_device_bytes)
    return total
