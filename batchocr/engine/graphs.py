"""Decode steps captured as graphs, one for each of a few batch sizes."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from batchocr.engine.backend.device import CaptureError, Device

logger = logging.getLogger(__name__)

Chosen = tuple[Tensor, Tensor]
"""Tokens and log-probabilities of a step, [sequences] each."""


@dataclass(slots=True)
class _Graph:
    """A decode step captured for one batch size."""

    index: Tensor
    """The rows to decode, padded, on the device."""
    replay: Callable[[], Chosen]
    rows: list[int] = field(default_factory=list)
    """What was written to `index` last, without the padding."""


class DecodeGraphs:
    """Replays a decode step for any number of rows up to max_rows, padded to a captured size with the spare row.

    step: decodes the rows in the index it is given. If the device has no graphs, `replay` returns None.
    """

    def __init__(self, device: Device, step: Callable[[Tensor], Chosen], *, max_rows: int, spare_row: int) -> None:
        self._device = device
        self._step = step
        self._spare_row = spare_row
        self._sizes = graph_sizes(max_rows)
        self._graphs: dict[int, _Graph] = {}

    def capture(self) -> None:
        """Capture every size, the largest first, so that the smaller ones share its memory; if the device's graphs are
        lazy, only the largest. If a size cannot be captured, go on with the sizes captured before, or without graphs.
        Raises EngineError if the attempt has broken the device."""
        sizes = self._sizes[::-1]
        try:
            self._capture(sizes[:1] if self._device.lazy_graphs else sizes)
        except CaptureError as error:
            self._keep_to_captured(sizes[len(self._graphs)], error)

    def replay(self, rows: list[int]) -> Chosen | None:
        """Decode these rows. Returns None if nothing was captured."""
        if not self._graphs:
            return None
        size = self._size_for(len(rows))
        if size not in self._graphs:
            self._capture_late(size)
        graph = self._graphs[self._size_for(len(rows))]
        if rows != graph.rows:
            padding = [self._spare_row] * (len(graph.index) - len(rows))
            graph.index.copy_(self._device.upload(torch.tensor(rows + padding)))
            graph.rows = rows
        tokens, logprobs = graph.replay()
        return tokens[: len(rows)], logprobs[: len(rows)]

    def _size_for(self, num_rows: int) -> int:
        return self._sizes[bisect_left(self._sizes, num_rows)]

    def _capture_late(self, size: int) -> None:
        """Capture a size in the middle of a run. For this, torch waits for all work of the device, empties its
        allocators' caches, so that the next batches allocate anew, and collects garbage if TORCH_CUDAGRAPH_GC is set.
        If the size cannot be captured, no other is tried from then on: rows are padded to a captured size, which needs
        no more memory. Raises EngineError if the attempt has broken the device."""
        try:
            self._capture([size])
        except (CaptureError, torch.OutOfMemoryError) as error:
            self._keep_to_captured(size, error)

    def _capture(self, sizes: list[int]) -> None:
        indices = [torch.full((size,), self._spare_row, device=self._device.torch_device) for size in sizes]
        replays = self._device.capture([partial(self._step, index) for index in indices])
        for index, replay in zip(indices, replays, strict=False):
            self._graphs[len(index)] = _Graph(index, replay)

    def _keep_to_captured(self, failed: int, error: Exception) -> None:
        self._sizes = sorted(self._graphs)
        logger.warning(
            "a decode step for %d sequences cannot be captured as a graph (%s); going on %s: decoding is slower. "
            "If memory was short, lower --memory-fraction; else leave out its kernels one by one (BATCHOCR_REJECT "
            "in docs/gpus.md)",
            failed,
            error,
            f"with those for {', '.join(map(str, self._sizes))}" if self._sizes else "without graphs",
        )


def graph_sizes(max_rows: int) -> list[int]:
    """1, 2, 4, 8, then in steps of 8 up to 64, of 16 up to 128, and of 32 beyond, ending with max_rows itself."""
    sizes = [1, 2, 4, *range(8, 64, 8), *range(64, 128, 16), *range(128, max_rows, 32)]
    return [size for size in sizes if size < max_rows] + [max_rows]
