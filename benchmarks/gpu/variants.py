"""A model or an engine with one thing changed, to measure what that thing is worth. The product uses none of this."""

from __future__ import annotations

import heapq
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from batchocr.data import Completion, Pixels, Request
from batchocr.engine.backend.device import Device, Mark, Result
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model
from batchocr.engine.model.preprocess import PatchGrid, Preprocessor
from batchocr.processes.meter import Meter
from benchmarks.replay import Steps
from benchmarks.timing import SpanProfile, covered_share
from benchmarks.trace import Noise, Trace


class Wrapped:
    """Everything that is not defined here comes from the wrapped object."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


class Paced(Wrapped):
    """A device on which the ViT computes so much to each decode step, by the rows that it may have."""

    def __init__(self, wrapped: Device, vit_slice_flop_per_sequence: float) -> None:
        super().__init__(wrapped)
        self.vit_slice_flop_per_sequence = vit_slice_flop_per_sequence


class WithoutGraphs(Wrapped):
    """A device that captures nothing: each kernel of a decode step is launched by the host."""

    def capture(self, functions: Sequence[Callable[[], object]]) -> list[Callable[[], object]]:
        return []


class WithGraphsAsCalls(Wrapped):
    """A device on which the host launches each kernel of what a graph would replay: the same padded steps."""

    def capture(self, functions: Sequence[Callable[[], Result]]) -> list[Callable[[], Result]]:
        return list(functions)


class OneStream(Wrapped):
    """A device whose two stages take turns on one stream."""

    def beside(self) -> AbstractContextManager[object]:
        return nullcontext()

    def take_over(self, value: Tensor, made: Mark) -> None:
        return


class WithoutOverlap(Wrapped):
    """A device on which each slice of a ViT batch finishes before anything else begins."""

    @contextmanager
    def beside(self) -> Iterator[None]:
        yield
        self.wrapped.mark().wait()


class Watched(Wrapped):
    """A device that measures how long the host waits for results; the rest of the time it works."""

    def __init__(self, wrapped: Device) -> None:
        super().__init__(wrapped)
        self.waited_s = 0.0

    def read_back(self, value: Tensor) -> tuple[Tensor, Mark]:
        host, done = self.wrapped.read_back(value)
        return host, _WatchedMark(done, self)


class _WatchedMark(Wrapped):
    def __init__(self, wrapped: Mark, device: Watched) -> None:
        super().__init__(wrapped)
        self._device = device

    def wait(self) -> None:
        started = time.perf_counter()
        self.wrapped.wait()
        self._device.waited_s += time.perf_counter() - started


class Prepared(Wrapped):
    """A preprocessor that can cut images beforehand (`prepare`): their patches wait in the host's memory."""

    def __init__(self, wrapped: Preprocessor, device: torch.device) -> None:
        super().__init__(wrapped)
        self._device = device
        self._waiting: defaultdict[PatchGrid, list[Tensor]] = defaultdict(list)
        self._any_of = random.Random(0).choice

    def prepare(self, trace: Trace) -> None:
        """Cut the images of a trace. They are noise: any of its size will do for a request."""
        noise = Noise()
        for request in (noise.request(ask) for page in trace.pages for ask in page.asks):
            image = request.pixels, request.resize_to
            patches = self.wrapped.patches([image]).cpu()
            self._waiting[self._grid(*image)].append(patches.pin_memory() if self._device.type == "cuda" else patches)

    def patches(self, images: Sequence[tuple[Pixels, tuple[int, int] | None]]) -> Tensor:
        waiting = [self._waiting[self._grid(*image)] for image in images]
        if not all(waiting):
            return torch.as_tensor(self.wrapped.patches(images))
        return torch.cat([self._any_of(patches).to(self._device, non_blocking=True) for patches in waiting])

    def _grid(self, pixels: Pixels, resize_to: tuple[int, int] | None) -> Any:
        return self.wrapped.patch_grid(pixels.height, pixels.width, resize_to)


def on_device(model: Model, device: Any) -> Model:
    """The same weights behind another device interface."""
    return replace(model, device=device)


class CoupledEngine:
    """An engine run like a server with one batch size: a batch of images is encoded, all of them are answered, then the
    next batch begins. The wrapped engine has to hold `batch_size` images in one ViT batch and in its decode batch.
    """

    def __init__(self, engine: Engine, batch_size: int) -> None:
        self._engine = engine
        self._batch_size = batch_size
        self._waiting: list[tuple[int, int, Request]] = []

    @property
    def has_work(self) -> bool:
        return bool(self._waiting) or self._engine.has_work

    def submit(self, request_id: int, request: Request) -> Completion | None:
        heapq.heappush(self._waiting, (-request.round, request_id, request))
        return None

    def step(self, meter: Meter) -> list[tuple[int, Completion]]:
        if not self._engine.has_work:
            for _ in range(min(self._batch_size, len(self._waiting))):
                _, request_id, request = heapq.heappop(self._waiting)
                if (refused := self._engine.submit(request_id, request)) is not None:
                    return [(request_id, refused)]
        return self._engine.step(meter)


class ProfiledEngine:
    """An engine that profiles some steps in the middle of its work.

    busy_share: the share of the time from the first to the last operation of those steps in which an operation ran;
    None until they are over. save_to: the file for a trace of them, of the host's calls too.
    """

    def __init__(
        self, engine: Steps, device: torch.device, *, first_step: int, num_steps: int, save_to: Path | None = None
    ) -> None:
        self._engine = engine
        self._profile = SpanProfile(device, with_host=save_to is not None)
        self._save_to = save_to
        self._first, self._last = first_step, first_step + num_steps
        self._step = 0
        self.busy_share: float | None = None

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    def submit(self, request_id: int, request: Request) -> Completion | None:
        return self._engine.submit(request_id, request)

    def step(self, meter: Meter) -> list[tuple[int, Completion]]:
        if self._step == self._first:
            self._profile.start()
        finished = self._engine.step(meter)
        self._step += 1
        if self._step == self._last:
            self.busy_share = covered_share((span.start, span.end) for span in self._profile.stop())
            if self._save_to is not None:
                self._profile.save(self._save_to)
        return finished
