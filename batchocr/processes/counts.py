"""What an engine counts while it works: sums that grow, so that those of several engines, or of one that was replaced,
can be added; and how many questions needed no engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Stage: TypeAlias = Literal[
    "open", "render", "layout", "preprocess", "vit", "prefill", "decode", "post-process", "write"
]

DEVICE_STAGES: Final[tuple[Stage, ...]] = ("layout", "preprocess", "vit", "prefill", "decode")


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


@dataclass(frozen=True, slots=True)
class EngineCounts:
    """What an engine has done. busy_s: how long its device was busy with any stage. starved_s: how long it waited
    without a request. queue_…: samples of the image tokens in the embedding queue.
    peak_device_bytes: the most memory it held on a GPU; 0 on a CPU."""

    stages: Mapping[Stage, StageCount] = field(default_factory=dict)
    patches: int = 0
    model_flop: float = 0.0
    busy_s: float = 0.0
    starved_s: float = 0.0
    batches_halved: Mapping[Stage, int] = field(default_factory=dict)
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
    several = list(counts)
    stages = {stage: StageCount() for stage in DEVICE_STAGES}
    halved: Counter[Stage] = Counter()
    for each in several:
        halved.update(each.batches_halved)
        for stage, count in each.stages.items():
            stages[stage].add(count)
    return EngineCounts(
        stages=stages,
        patches=sum(each.patches for each in several),
        model_flop=sum(each.model_flop for each in several),
        busy_s=sum(each.busy_s for each in several),
        starved_s=sum(each.starved_s for each in several),
        batches_halved=dict(halved),
        preemptions=sum(each.preemptions for each in several),
        queue_samples=sum(each.queue_samples for each in several),
        queue_token_sum=sum(each.queue_token_sum for each in several),
        queue_max_tokens=max((each.queue_max_tokens for each in several), default=0),
        peak_device_bytes=max((each.peak_device_bytes for each in several), default=0),
    )
