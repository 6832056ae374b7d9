"""Times of calls on a device, and the share of a period that its kernels fill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def mean_ms(call: Callable[[], object], device: torch.device, *, runs: int, warm_up: int = 3) -> float:
    """Milliseconds per call over `runs` calls in a row, on a GPU by its own clock."""
    for _ in range(warm_up):
        call()
    if device.type != "cuda":
        started = time.perf_counter()
        for _ in range(runs):
            call()
        return 1000 * (time.perf_counter() - started) / runs
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    begun.record()
    for _ in range(runs):
        call()
    ended.record()
    ended.synchronize()
    return begun.elapsed_time(ended) / runs


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True, slots=True)
class Span:
    """An operation on the device: a kernel or a copy on a GPU, a torch operation on a CPU. Times are in ns."""

    name: str
    start: int
    end: int


class SpanProfile:
    """What the device does between `start` and `stop`, according to torch's profiler.

    Profiling slows the host down, so a device that waits for the host waits longer than it would otherwise.
    """

    def __init__(self, device: torch.device, *, with_host: bool = False) -> None:
        """with_host: profile what the host does, too."""
        self._device = device
        on_gpu = device.type == "cuda"
        self._wanted = DeviceType.CUDA if on_gpu else DeviceType.CPU
        activities = [ProfilerActivity.CUDA] if on_gpu else []
        self._profiler = profile(activities=activities + [ProfilerActivity.CPU] * (with_host or not on_gpu))

    def start(self) -> None:
        synchronize(self._device)
        self._profiler.start()

    def stop(self) -> list[Span]:
        synchronize(self._device)
        self._profiler.stop()
        assert self._profiler.profiler is not None
        results = self._profiler.profiler.kineto_results
        assert results is not None
        # Converting these to torch's own list takes a minute for a million kernels.
        return [
            Span(event.name(), event.start_ns(), event.end_ns())
            for event in results.events()
            if event.device_type() == self._wanted
        ]

    def save(self, path: Path) -> None:
        """Write what was profiled as a Chrome trace, compressed if the file's name ends in .gz."""
        self._profiler.export_chrome_trace(str(path))


def spans(call: Callable[[], object], device: torch.device) -> list[Span]:
    """The operations that a call runs on the device."""
    profiled = SpanProfile(device)
    profiled.start()
    call()
    return profiled.stop()


def covered_share(times: Iterable[tuple[int, int]]) -> float:
    """The share of the time from the first start to the last end that is covered; 0 if there are no spans."""
    ordered = sorted(times)
    if not ordered:
        return 0.0
    begin, covered, reached = ordered[0][0], 0, ordered[0][0]
    for start, end in ordered:
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered / max(1, reached - begin)
