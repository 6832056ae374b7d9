"""An NVIDIA GPU: two streams, events as marks, copies through pinned memory, captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

import torch
from torch import Tensor

from batchocr.engine.backend.device import CaptureError, Device, Mark, Result
from batchocr.errors import EngineError

_WARM_UP_RUNS = 2
_HEAD_START_CYCLES = 2_000_000
"""How many cycles the GPU is kept busy before it is timed, about a millisecond, so that the host is ahead of it:
otherwise launching, which a graph does without, would count."""


class CudaMark(Mark):
    """An event on a stream."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event(enable_timing=True)
        self._event.record()

    def is_done(self) -> bool:
        return bool(self._event.query())

    def wait(self) -> None:
        self._event.synchronize()

    def wait_on_stream(self) -> None:
        """Make the current stream wait, not the calling thread."""
        self._event.wait()

    def seconds_since(self, earlier: Self) -> float:
        return float(earlier._event.elapsed_time(self._event)) / 1000


class CudaDevice(Device):
    """An NVIDIA GPU, on which work is queued in streams, and done later.

    Decoding runs on a high-priority stream, so that its small kernels run between those of the vision stage, which fill
    the device. How far they get there depends on the GPU and its libraries, so there is one decode step to each slice
    of the ViT. Pinned buffers need no care here: torch reuses one only when the copies from it are done.
    """

    max_unread = 1
    vit_slice_flop_per_sequence = 1e10
    """Floating-point operations in a slice of the ViT, for each sequence that a decode step may have. A dense page is
    32 TFLOP of the ViT and 1,480 tokens: so steps are half full wherever their kernels run."""

    def __init__(
        self, device: torch.device, *, one_stream: bool = False, graphs: bool = True, lazy_graphs: bool = False
    ) -> None:
        """one_stream: have the stages take turns on one stream. graphs: whether to capture graphs. lazy_graphs: only
        when they are needed."""
        super().__init__(device)
        self._has_graphs = graphs
        self.lazy_graphs = lazy_graphs
        self._kept_pool: Any = torch.cuda.graph_pool_handle() if lazy_graphs else None
        torch.cuda.set_device(device)
        self._main = torch.cuda.Stream(device, priority=-1)
        self._side = self._main if one_stream else torch.cuda.Stream(device, priority=0)

    def upload(self, host: Tensor) -> Tensor:
        return host.pin_memory().to(self.torch_device, non_blocking=True)

    def read_back(self, value: Tensor) -> tuple[Tensor, Mark]:
        host = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        host.copy_(value, non_blocking=True)
        return host, CudaMark()

    def mark(self) -> Mark:
        return CudaMark()

    @contextmanager
    def main(self) -> Iterator[None]:
        self._main.wait_stream(torch.cuda.current_stream(self.torch_device))
        with torch.cuda.stream(self._main):
            yield

    @contextmanager
    def beside(self) -> Iterator[None]:
        # It need not wait for the main stream: the weights were there when the engine made its DeviceClock, which waits
        # for the stream they were loaded on, and all else that is read here is made here.
        with torch.cuda.stream(self._side):
            yield

    def take_over(self, value: Tensor, made: Mark) -> None:
        assert isinstance(made, CudaMark)
        made.wait_on_stream()
        value.record_stream(torch.cuda.current_stream())

    def capture(self, functions: Sequence[Callable[[], Result]]) -> Iterator[Callable[[], Result]]:
        pool = self._kept_pool or torch.cuda.graph_pool_handle()
        for function in functions if self._has_graphs else ():
            with self.main():  # so that what libraries allocate for a stream is there before the capture
                for _ in range(_WARM_UP_RUNS):
                    function()
            torch.cuda.synchronize()
            yield self._capture(function, pool)

    def _capture(self, function: Callable[[], Result], pool: Any) -> Callable[[], Result]:
        graph = torch.cuda.CUDAGraph()
        try:
            # If the capture fails, torch leaves its stream current; ours, around it, gives back the one before.
            with (
                torch.cuda.stream(self._main),
                # Whatever other threads of this process may do meanwhile.
                torch.cuda.graph(graph, pool=pool, stream=self._main, capture_error_mode="thread_local"),
            ):
                result = function()
        except Exception as error:
            reason = _first_of(error)
            self._leave_capture(graph, pool, reason)
            raise CaptureError(reason) from error

        def replay() -> Result:
            graph.replay()
            return result

        return replay

    def _leave_capture(self, graph: torch.cuda.CUDAGraph, pool: Any, reason: str) -> None:
        """Clear up after a capture that failed. Raises EngineError if nothing else works any more."""
        self._failed_graph = graph  # torch's allocators go on asking it whether it is capturing
        with suppress(RuntimeError):  # where torch has done so itself
            # Otherwise memory used on two streams would not be freed before the capture is over, which it never is.
            torch._C._cuda_endAllocateToPool(self.torch_device.index or 0, pool)
        try:
            with self.main():
                torch.ones(1, device=self.torch_device).item()
            torch.cuda.synchronize()
        except RuntimeError as error:
            raise EngineError(
                f"capturing a decode step has broken {self.torch_device} for this process ({reason}): run with "
                "--backend reference, or leave a kernel out with BATCHOCR_REJECT (docs/gpus.md)"
            ) from error


def _first_of(error: BaseException) -> str:
    """What went wrong first, in one line: ending a capture that failed is an error of its own."""
    while error.__context__ is not None:
        error = error.__context__
    return f"{type(error).__name__}: {error}".splitlines()[0]


def device_seconds(call: Callable[[], object]) -> float:
    """How long a call keeps the device busy, without the host's time for launching it."""
    torch.cuda._sleep(_HEAD_START_CYCLES)
    begun = CudaMark()
    call()
    ended = CudaMark()
    ended.wait()
    return ended.seconds_since(begun)
