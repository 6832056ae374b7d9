"""Where tensors live and in which order work runs there: uploads, read-backs, streams, marks, captured graphs.

The engine is written against `Device`. On a host, work is done when a call returns; on a GPU it is only queued, and a
`Mark` tells when it is done.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Self, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


class CaptureError(Exception):
    """Work cannot be captured as a graph. The device is as it was before, and can do the same work without one."""


class Mark:
    """A point in a stream's work. On a host it has passed when it is made."""

    def __init__(self) -> None:
        self._time_s = time.perf_counter()

    def is_done(self) -> bool:
        return True

    def wait(self) -> None:
        """Block the calling thread until the work before the mark is done."""

    def seconds_since(self, earlier: Self) -> float:
        """Device time between two marks that are both done."""
        return self._time_s - earlier._time_s


class Device:
    """A CPU, or any device that torch drives without our streams. `CudaDevice` in cuda_device.py is the other kind of
    device."""

    max_unread = 0
    """How many launched steps may be unread when the next is launched; 0 if a step is done when its call returns."""
    vit_slice_flop_per_sequence = math.inf
    """Floating-point operations in a slice of the ViT, for each sequence that a decode step may have; inf: never slice
    (CPU)."""
    lazy_graphs = False
    """Whether graphs are captured when they are first needed, not at the start. Then all calls of `capture` share
    buffers."""

    def __init__(self, device: torch.device) -> None:
        self.torch_device = device

    def upload(self, host: Tensor) -> Tensor:
        """The tensor on the device, without waiting for the copy. The host tensor may be freed at once."""
        return host.to(self.torch_device)

    def read_back(self, value: Tensor) -> tuple[Tensor, Mark]:
        """A host tensor that holds the value once the mark is done."""
        return value.cpu(), Mark()

    def mark(self) -> Mark:
        """Mark this point in the current stream."""
        return Mark()

    def main(self) -> AbstractContextManager[object]:
        """Inside, work goes to the main stream, after the work already queued on the current stream."""
        return nullcontext()

    def beside(self) -> AbstractContextManager[object]:
        """Inside, work goes to a lower-priority stream that runs alongside the main one."""
        return nullcontext()

    def take_over(self, value: Tensor, made: Mark) -> None:
        """Make the current stream wait for a value made on another one, and keep the value's memory for it."""

    def capture(self, functions: Sequence[Callable[[], Result]]) -> Iterable[Callable[[], Result]]:
        """The functions as graphs to replay, captured one by one: the same work on the same buffers, which the graphs
        share, so that no two may run at once. Empty if the device has no graphs.

        Raises CaptureError at the first that cannot be captured; EngineError if that has broken the device.
        """
        return ()


class DeviceClock:
    """Times of marks, in seconds since the clock was made. Its origin moves along: long event times lose precision."""

    _KEEP_S = 60.0

    def __init__(self, device: Device) -> None:
        self._origin = device.mark()
        self._origin.wait()
        self._origin_s = 0.0

    def at(self, mark: Mark) -> float:
        """The time of a mark that is done."""
        since_s = mark.seconds_since(self._origin)
        time_s = self._origin_s + since_s
        if since_s > self._KEEP_S:
            self._origin, self._origin_s = mark, time_s
        return time_s
