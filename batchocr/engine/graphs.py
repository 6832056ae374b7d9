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
        """Capture every size, the largest first, so that the smaller ones share its memory. If a size cannot be
        captured, go on with the sizes captured before, or without graphs. Raises EngineError if the attempt has broken
        the device."""
        on = self._device.torch_device
        indices = [torch.full((size,), self._spare_row, device=on) for size in reversed(self._sizes)]
        replays = self._device.capture([partial(self._step, index) for index in indices])
        try:
            for index, replay in zip(indices, replays, strict=False):
                self._graphs[len(index)] = _Graph(index, replay)
        except CaptureError as error:
            captured = ", ".join(map(str, sorted(self._graphs)))
            logger.warning(
                "a decode step for %d sequences cannot be captured as a graph (%s); going on %s: decoding is slower. "
                "If memory was short, lower --memory-fraction; else leave out its kernels one by one (BATCHOCR_REJECT "
                "in docs/gpus.md)",
                self._sizes[-1 - len(self._graphs)],
                error,
                f"with those for {captured}" if captured else "without graphs",
            )
        self._sizes = sorted(self._graphs)

    def replay(self, rows: list[int]) -> Chosen | None:
        """Decode these rows. Returns None if nothing was captured."""
        if not self._graphs:
            return None
        graph = self._graphs[self._sizes[bisect_left(self._sizes, len(rows))]]
        if rows != graph.rows:
            padding = [self._spare_row] * (len(graph.index) - len(rows))
            graph.index.copy_(self._device.upload(torch.tensor(rows + padding)))
            graph.rows = rows
        tokens, logprobs = graph.replay()
        return tokens[: len(rows)], logprobs[: len(rows)]


def graph_sizes(max_rows: int) -> list[int]:
    """1, 2, 4, 8, then in steps of 8 up to 64, of 16 up to 128, and of 32 beyond, ending with max_rows itself."""
    sizes = [1, 2, 4, *range(8, 64, 8), *range(64, 128, 16), *range(128, max_rows, 32)]
    return [size for size in sizes if size < max_rows] + [max_rows]
