"""Where tensors live and in what order things happen there: uploads, read-backs, streams, marks, captured graphs.

The engine is written against `Device`. On a host everything has happened when a call returns; on a GPU it has only
been asked for, and a `Mark` tells when it is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


class Mark(Protocol):
    """A moment in a stream's work."""

    def is_done(self) -> bool: ...

    def wait(self) -> None:
        """Let the calling thread wait until the work before the mark is done."""
        ...

    def seconds_since(self, earlier: Self) -> float:
        """Device time between two marks that are both done."""
        ...


class Device(Protocol):
    """One implementation per kind of device: `HostDevice` here, `CudaDevice` in cuda_device.py."""

    torch_device: torch.device
    max_unread: int
    """How many launched steps may go unread while the next is launched: 0 where a step is done when it returns."""

    def upload(self, host: Tensor) -> Tensor:
        """The tensor on the device, without waiting for the copy. The host's may be let go of at once."""
        ...

    def read_back(self, value: Tensor) -> tuple[Tensor, Mark]:
        """A host tensor that holds the value once the mark is done."""
        ...

    def mark(self) -> Mark:
        """Mark this moment of the current stream."""
        ...

    def main(self) -> AbstractContextManager[object]:
        """Inside, work goes to the main stream, behind all that the calling thread has asked for before."""
        ...

    def beside(self) -> AbstractContextManager[object]:
        """Inside, work goes to a stream of lower priority beside the main one."""
        ...

    def take_over(self, value: Tensor, made: Mark) -> None:
        """Before the current stream reads a value from another one: wait there for the mark, and keep the memory."""
        ...

    def capture(self, function: Callable[[], Result]) -> Callable[[], Result] | None:
        """The function as a graph to replay: the same work on the same buffers. None where there are no graphs."""
        ...


class DeviceClock:
    """Times of marks, in seconds since the clock was made. Moves its origin along: an event's timer loses digits."""

    _KEEP_S = 60.0

    def __init__(self, device: Device) -> None:
        self._origin = device.mark()
        self._origin.wait()
        self._origin_s = 0.0

    def at(self, mark: Mark) -> float:
        """When a mark that is done was reached."""
        since_s = mark.seconds_since(self._origin)
        time_s = self._origin_s + since_s
        if since_s > self._KEEP_S:
            self._origin, self._origin_s = mark, time_s
        return time_s


class HostMark:
    """A moment that has passed."""

    def __init__(self) -> None:
        self._time_s = time.perf_counter()

    def is_done(self) -> bool:
        return True

    def wait(self) -> None:
        return

    def seconds_since(self, earlier: HostMark) -> float:
        return self._time_s - earlier._time_s


class HostDevice:
    """A CPU, or any device that torch drives without streams of ours: each step is over when it returns."""

    max_unread = 0

    def __init__(self, device: torch.device) -> None:
        self.torch_device = device

    def upload(self, host: Tensor) -> Tensor:
        return host.to(self.torch_device)

    def read_back(self, value: Tensor) -> tuple[Tensor, Mark]:
        return value.cpu(), HostMark()

    def mark(self) -> Mark:
        return HostMark()

    def main(self) -> AbstractContextManager[object]:
        return nullcontext()

    def beside(self) -> AbstractContextManager[object]:
        return nullcontext()

    def take_over(self, value: Tensor, made: Mark) -> None:
        return

    def capture(self, function: Callable[[], Result]) -> Callable[[], Result] | None:
        return None
