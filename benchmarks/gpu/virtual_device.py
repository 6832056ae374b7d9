"""A GPU that exists only as a clock: two streams of kernels whose times are known, followed from event to event.

The host's time moves only when a launch is charged to it (`VirtualClock.work`) and when it waits for a mark: an engine
that looked at the machine's clock would not be told the truth. Kernels begin once they are launched, those before them
on their stream are done, and what they wait for has happened, as on a GPU. What two streams do to each other is a
`Contention`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from batchocr.engine.backend.cuda_device import CudaDevice
from batchocr.engine.backend.device import Mark, Result

Work = Literal["preprocess", "vit", "prefill", "decode"]
ContentionName = Literal["persistent", "slices"]

ANSWER = 9
"""The token that every step chooses."""

_ROUNDING_S = 1e-12


@dataclass(slots=True)
class Kernels:
    """Kernels of one kind of work, one after the other, taken as a whole.

    alone_s: what they take with the GPU to themselves; left_s: what is left of it. num: how many they are. gaps: how
    often one of another stream may begin while they run, if those that fill every SM do so until they end. share: of
    the GPU, while they run.
    """

    work: Work
    alone_s: float
    num: int
    gaps: float = 1.0
    share: float = 1.0
    left_s: float = 0.0

    def __post_init__(self) -> None:
        self.left_s = self.alone_s


Contention: TypeAlias = Callable[[Kernels, Kernels], tuple[float, float]]
"""(of the main stream, of the side stream) → the rates of both while they run beside each other; 1 is that alone."""


def persistent(main: Kernels, side: Kernels) -> tuple[float, float]:
    """Kernels that fill every SM until they end, as cuBLAS's products do on Hopper, whatever a stream's priority: those
    of the other stream get in one at a time, where one of them ends, or between short kernels.

    The pessimistic model for decoding. On an A100 or an RTX 4090 products are not persistent: for them it is a bound.
    """
    alone_s = main.alone_s / main.num
    rate = alone_s / (alone_s + side.alone_s / side.gaps)
    return rate, 1.0 - main.share * rate


def slices(main: Kernels, side: Kernels) -> tuple[float, float]:
    """One stream at a time, the main one first: nothing is gained by running beside each other."""
    return 1.0, 0.0


CONTENTION: dict[ContentionName, Contention] = {"persistent": persistent, "slices": slices}


class VirtualMark:
    """A point in a stream's work. time_s: when it was reached; None before that."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.time_s: float | None = None

    def is_done(self) -> bool:
        return self.time_s is not None

    def wait(self) -> None:
        self._clock.wait_for(self)

    def seconds_since(self, earlier: VirtualMark) -> float:
        assert self.time_s is not None and earlier.time_s is not None
        return self.time_s - earlier.time_s


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets nothing behind it begin before the mark is reached."""

    mark: VirtualMark


Queued = Kernels | VirtualMark | Gate


class VirtualClock:
    """The host's time, and the two streams as far as they have come by then.

    done_s: work done, in seconds that it takes alone. idle_s: how long neither stream had anything to do.
    """

    def __init__(self, contention: Contention) -> None:
        self.now_s = 0.0
        self.done_s: defaultdict[Work, float] = defaultdict(float)
        self.idle_s = 0.0
        self._contention = contention
        self._followed_s = 0.0
        self._main: deque[Queued] = deque()
        self._side: deque[Queued] = deque()

    def count_anew(self) -> None:
        """Forget what was counted so far; the time goes on."""
        self.done_s.clear()
        self.idle_s = 0.0

    def work(self, seconds: float) -> None:
        """Let the host work for so long, while the streams go on."""
        self.now_s += seconds
        while self._followed_s < self.now_s:
            self._advance(self.now_s)

    def launch(self, queued: Queued, *, side: bool) -> None:
        (self._side if side else self._main).append(queued)
        self._reach()

    def wait_for(self, mark: VirtualMark) -> None:
        """Let the host wait until the mark is reached."""
        while mark.time_s is None:
            if not self._advance(None):
                raise RuntimeError("the host waits for what no stream will ever reach")
        self.now_s = max(self.now_s, self._followed_s)

    def _advance(self, until_s: float | None) -> bool:
        """Go on to the next event, or to this time if that is earlier. Returns False if there is neither."""
        main, side = _running(self._main), _running(self._side)
        main_rate, side_rate = self._contention(main, side) if main and side else (1.0, 1.0)
        step_s = inf
        if main:
            step_s = main.left_s / main_rate
        if side and side_rate:
            step_s = min(step_s, side.left_s / side_rate)
        if until_s is not None and until_s - self._followed_s <= step_s:
            step_s, self._followed_s = until_s - self._followed_s, until_s
        elif step_s < inf:
            self._followed_s += step_s
        else:
            return False
        if main:
            self._progress(main, step_s * main_rate)
        if side:
            self._progress(side, step_s * side_rate)
        if not main and not side:
            self.idle_s += step_s
        self._reach()
        return True

    def _progress(self, kernels: Kernels, seconds: float) -> None:
        kernels.left_s -= seconds
        self.done_s[kernels.work] += seconds

    def _reach(self) -> None:
        """Take from both streams what is done, which may be what the other one waits for."""
        reached = True
        while reached:
            reached = False
            for stream in (self._main, self._side):
                while stream and self._is_reached(stream[0]):
                    stream.popleft()
                    reached = True

    def _is_reached(self, queued: Queued) -> bool:
        match queued:
            case Kernels():
                return queued.left_s <= _ROUNDING_S
            case Gate():
                return queued.mark.is_done()
            case _:
                queued.time_s = self._followed_s
                return True


def _running(stream: deque[Queued]) -> Kernels | None:
    return stream[0] if stream and isinstance(stream[0], Kernels) else None


class VirtualDevice:
    """Implements `backend.device.Device`. Tensors are the host's, and what is in them is of no interest.

    step: what a decode step costs, given its graph's rows and how many of them are used: the host's seconds, and the
    kernels.
    """

    torch_device = torch.device("cpu")
    max_unread = CudaDevice.max_unread
    vit_flop_a_row = CudaDevice.vit_flop_a_row

    def __init__(self, clock: VirtualClock, step: Callable[[int, int], tuple[float, Kernels]]) -> None:
        self.clock = clock
        self._step = step
        self._is_beside = False

    def launch(self, kernels: Kernels) -> None:
        """Queue kernels on the current stream."""
        self.clock.launch(kernels, side=self._is_beside)

    def upload(self, host: Tensor) -> Tensor:
        return host

    def read_back(self, value: Tensor) -> tuple[Tensor, Mark]:
        return value, self.mark()

    def mark(self) -> VirtualMark:
        mark = VirtualMark(self.clock)
        self.clock.launch(mark, side=self._is_beside)
        return mark

    def main(self) -> AbstractContextManager[object]:
        return nullcontext()

    @contextmanager
    def beside(self) -> Iterator[None]:
        self._is_beside = True
        try:
            yield
        finally:
            self._is_beside = False

    def take_over(self, value: Tensor, made: Mark) -> None:
        assert isinstance(made, VirtualMark)
        self.clock.launch(Gate(made), side=self._is_beside)

    def capture(self, functions: Sequence[Callable[[], Result]]) -> list[Callable[[], Result]]:
        """Graphs of decode steps: `partial(step, index)`, where the index holds the spare row until it is replayed."""
        return [self._graph(function) for function in functions]

    def _graph(self, function: Any) -> Callable[[], Any]:
        (index,) = function.args
        num_rows, spare_row = len(index), int(index[0])
        chosen = torch.full((num_rows,), ANSWER), torch.zeros(num_rows)

        def replay() -> Any:
            host_s, kernels = self._step(num_rows, int((index != spare_row).sum()))
            self.clock.work(host_s)
            self.launch(kernels)
            return chosen

        return replay
