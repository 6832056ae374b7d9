"""The stage before the two others, in runs with a detector: finds the parts of pages, with its own batch size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from batchocr.data import Completion, Pixels
from batchocr.engine.backend.device import Device, DeviceClock, Mark
from batchocr.engine.batch_limit import BatchLimit
from batchocr.engine.model.detector import Detector
from batchocr.engine.sequence import Announce
from batchocr.processes.meter import Meter

_Page: TypeAlias = tuple[int, Pixels]
"""A request's id, and its image."""


@dataclass(frozen=True, slots=True)
class _DetectionBatch:
    """A batch on the device."""

    pages: list[_Page]
    begun: Mark
    found: Tensor
    """What the detector found, on the host, valid once `ended` is done."""
    ended: Mark


class LayoutStage:
    """Owns the pages whose layout a detector is asked for, in the order of their arrival.

    A batch takes its turn with the slices of the vision stage, on their stream; one is on the device at a time.
    transformers' code waits for that stream a few times, so decoding waits once in so many pages.
    """

    def __init__(
        self, detector: Detector, device: Device, clock: DeviceClock, announce: Announce, *, batch_size: int
    ) -> None:
        self._detector = detector
        self._device = device
        self._clock = clock
        self._announce = announce
        self._batch_size = BatchLimit("layout", batch_size, "pages (--layout-batch-size)")
        self._waiting: deque[_Page] = deque()
        self._launched: _DetectionBatch | None = None

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._launched)

    def add(self, request_id: int, pixels: Pixels) -> None:
        self._waiting.append((request_id, pixels))

    def run(self, meter: Meter, *, alone: bool) -> list[tuple[int, Completion]]:
        """Launch a batch if there is none on the device. Returns the answers of the one that is done.

        alone: whether there is no other work meanwhile, so that it is worth waiting for.
        """
        if self._launched is None and self._waiting:
            self._launch(meter)
        if self._launched is None or not (alone or self._launched.ended.is_done()):
            return []
        self._launched.ended.wait()
        return list(self._take(meter))

    def clear(self) -> None:
        """Forget all pages, and wait for the work on the device."""
        self._waiting.clear()
        if self._launched is not None:
            self._launched.ended.wait()
            self._launched = None

    def _launch(self, meter: Meter) -> None:
        pages = [self._waiting.popleft() for _ in range(min(self._batch_size.size, len(self._waiting)))]
        self._announce(self._detector.flop_per_image * len(pages), [request_id for request_id, _ in pages])
        try:
            with self._device.beside():
                begun = self._device.mark()
                found = self._detector.detect([pixels for _, pixels in pages])
                self._launched = _DetectionBatch(pages, begun, *self._device.read_back(found))
        except torch.OutOfMemoryError:
            if len(pages) == 1:
                raise
            self._waiting.extendleft(reversed(pages))
            self._batch_size.halve(len(pages), meter)
        else:
            self._batch_size.count_good()

    def _take(self, meter: Meter) -> Iterator[tuple[int, Completion]]:
        assert self._launched is not None
        done, self._launched = self._launched, None
        num_pages = len(done.pages)
        times_s = self._clock.at(done.begun), self._clock.at(done.ended)
        meter.add_on_device("layout", *times_s, items=num_pages, limit=self._batch_size.size)
        meter.model_flop += self._detector.flop_per_image * num_pages
        for (request_id, _), found in zip(done.pages, done.found, strict=True):
            yield request_id, self._detector.answer(found)
