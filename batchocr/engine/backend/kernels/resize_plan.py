"""What the host computes before a batch of images is resized: which passes, over which bytes, with which weights.

A pass resizes one side of an image. The first passes of all images make up one launch, their second passes the next; an
image's last pass writes patches, the others write rows of pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from batchocr.engine.backend.base import ResizePlan
from batchocr.engine.backend.resize import Size, bicubic_taps, resizes_rows_first

CHANNELS = 3


@dataclass(frozen=True, slots=True)
class Launch:
    """Passes that run in parallel."""

    passes: NDArray[np.int64]
    """The passes of a launch as numbers: [passes, 12], see `_describe`."""
    tiles: NDArray[np.int32]
    """The pass that each tile belongs to."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The passes of a batch over its images, which lie one after the other in memory."""

    scratch_bytes: int
    patch_bytes: int
    table: NDArray[np.int32]
    """The taps of all images."""
    launches: list[Launch]


def plan_batch(sizes: Sequence[Size], plans: Sequence[ResizePlan], tile: int) -> BatchPlan:
    """Plan the resizing of images of these sizes, in tiles of `tile` values."""
    launches: list[list[_Pass]] = []
    pixel_bytes = scratch_bytes = patch_bytes = 0
    for size, plan in zip(sizes, plans, strict=True):
        source, pixel_bytes = pixel_bytes, pixel_bytes + _num_values(size)
        *earlier, last = _changes(size, plan)
        launches.extend([] for _ in range(len(earlier) + 1 - len(launches)))
        for (before, after), launch in zip(earlier, launches, strict=False):
            launch.append(_Pass(before, after, source, scratch_bytes, is_last=False))
            source, scratch_bytes = scratch_bytes, scratch_bytes + _num_values(after)
        launches[len(earlier)].append(_Pass(*last, source, patch_bytes, is_last=True))
        patch_bytes += _num_values(last[1])
    table = _TapTable()
    described = [_launch(passes, table, tile) for passes in launches]
    return BatchPlan(scratch_bytes, patch_bytes, table.values(), described)


@dataclass(frozen=True, slots=True)
class _Pass:
    """The resize of one side of an image."""

    before: Size
    after: Size
    source: int
    """The first byte of what is resized, among the pixels of the images, or in the scratch memory after an earlier
    pass."""
    destination: int
    """The first byte of the result, in the scratch memory, or among the patches if this is the image's last pass."""
    is_last: bool


class _TapTable:
    """The taps of a batch, concatenated, once for each pair of sizes."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.int32]] = [np.empty(0, np.int32)]
        self._length = 0
        self._offsets: dict[Size, int] = {}

    def place(self, in_size: int, out_size: int) -> tuple[int, int]:
        """The number of taps of this resize and the offset of its starts, which its weights follow."""
        taps = bicubic_taps(in_size, out_size)
        if (in_size, out_size) not in self._offsets:
            self._offsets[in_size, out_size] = self._length
            self._parts += [taps.starts, taps.weights.ravel()]
            self._length += taps.starts.size + taps.weights.size
        return len(taps.weights), self._offsets[in_size, out_size]

    def values(self) -> NDArray[np.int32]:
        return np.concatenate(self._parts)


def _changes(size: Size, plan: ResizePlan) -> list[tuple[Size, Size]]:
    """The sizes before and after each pass; a single pass that changes nothing if there is nothing to resize."""
    changes = []
    for target in plan:
        between = (target[0], size[1]) if resizes_rows_first(size, target) else (size[0], target[1])
        for after in (between, target):
            if after != size:
                changes.append((size, after))
                size = after
    return changes or [(size, size)]


def _launch(passes: Sequence[_Pass], table: _TapTable, tile: int) -> Launch:
    num_tiles = [-(-_num_values(step.after) // tile) for step in passes]
    first_tiles = accumulate(num_tiles, initial=0)
    descriptions = [_describe(step, first, table) for step, first in zip(passes, first_tiles, strict=False)]
    tiles = np.repeat(np.arange(len(passes), dtype=np.int32), num_tiles)
    return Launch(np.array(descriptions, dtype=np.int64), tiles)


def _describe(step: _Pass, first_tile: int, table: _TapTable) -> tuple[int, ...]:
    """The fields of a pass, in the order in which the kernel reads them."""
    resizes_rows = step.before[1] == step.after[1]
    side = 0 if resizes_rows else 1
    num_taps, starts = table.place(step.before[side], step.after[side])
    height, width = step.after
    return (
        first_tile,
        step.source,
        step.destination,
        step.is_last,
        resizes_rows,
        step.before[1],
        step.before[side],
        height,
        width,
        num_taps,
        starts,
        starts + step.after[side],
    )


def _num_values(size: Size) -> int:
    return size[0] * size[1] * CHANNELS
