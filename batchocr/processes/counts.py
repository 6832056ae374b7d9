"""What a run, its workers and its engines count while they work: sums that grow, so that those of several engines, or
of one that was replaced, can be added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Final, Literal, TypeAlias, get_args

Stage: TypeAlias = Literal[
    "open", "render", "layout", "preprocess", "vit", "prefill", "decode", "post-process", "write"
]

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
DEVICE_STAGES: Final[tuple[Stage, ...]] = ("layout", "preprocess", "vit", "prefill", "decode")
WORKER_STAGES: Final[tuple[Stage, ...]] = ("open", "render", "post-process")


@dataclass(slots=True)
class StageCount:
    """What a stage has done."""

    busy_s: float = 0.0
    batches: int = 0
    items: int = 0
    limit_sum: float = 0.0
    """How many items the stage's batches could have held; 0 if they have no limit."""


@dataclass(slots=True)
class Counts:
    """The counts of what was done. Whoever counts leaves at 0 what others do: only engines compute, only workers
    render."""

    stages: dict[Stage, StageCount] = field(default_factory=lambda: {stage: StageCount() for stage in STAGES})
    busy_s: float = 0.0
    """How long a device was busy with any stage."""
    starved_s: float = 0.0
    """How long an engine waited without a request."""
    patches: int = 0
    model_flop: float = 0.0
    batches_halved: Counter[Stage] = field(default_factory=Counter)
    """How often a batch did not fit into memory, and was tried again at half its size."""
    preemptions: int = 0
    """How often a sequence had to begin again because the KV cache was full."""
    queue_samples: int = 0
    """How often the image tokens in the embedding queue were counted."""
    queue_token_sum: int = 0
    queue_max_tokens: int = 0
    peak_device_bytes: int = 0
    """The most memory that torch has held of a GPU, in use or kept for later; 0 on a CPU."""
    blocks: int = 0
    """Blocks that the model has read, of all pages."""
    asked: int = 0
    """Questions of pages."""
    from_run: int = 0
    """Questions that no engine was asked, because this run had asked the same."""
    from_cache: int = 0
    """Questions that no engine was asked, because an earlier run had asked the same."""
    saved_image_tokens: int = 0
    """Image tokens of the questions that no engine was asked."""
    saved_output_tokens: int = 0

    def add(self, stage: Stage, seconds: float, *, items: int = 1, batches: int = 1, limit: float = 0.0) -> None:
        """Count work done. limit: how many items the batch could have held under the limit it came closest to."""
        count = self.stages[stage]
        count.busy_s += seconds
        count.batches += batches
        count.items += items
        count.limit_sum += limit


_PEAKS: Final = ("queue_max_tokens", "peak_device_bytes")
_SUMS: Final = [field.name for field in fields(Counts) if field.name not in ("stages", *_PEAKS)]


def sum_of(several: Iterable[Counts]) -> Counts:
    """What several have done together; of the peaks, the highest."""
    total = Counts()
    for counts in several:
        for stage, done in counts.stages.items():
            total.add(stage, done.busy_s, items=done.items, batches=done.batches, limit=done.limit_sum)
        for name in _SUMS:
            setattr(total, name, getattr(total, name) + getattr(counts, name))
        for name in _PEAKS:
            setattr(total, name, max(getattr(total, name), getattr(counts, name)))
    return total
