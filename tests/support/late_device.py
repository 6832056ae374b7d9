"""A device that, like a GPU, has done nothing yet when a call returns: a result read too early is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from batchocr.engine.backend.base import SamplerRows
from batchocr.engine.backend.device import Device, Mark, Result
from batchocr.engine.backend.reference import Ops


class CapturableOps(Ops):
    """Lets the late device "capture" what a real graph could not."""

    capturable = True

    def sample(self, logits: Tensor, index: Tensor, rows: SamplerRows, longest: int) -> tuple[Tensor, Tensor]:
        """As the kernel that graphs need: every rule is followed whatever `longest` is, the spare row stays empty."""
        rows.length[-1] = 0
        return super().sample(logits, index, rows, rows.history.shape[1])


class LateMark(Mark):
    """Done, with everything before it in its stream, once it is waited for or asked about for the third time."""

    def __init__(self, stream: list[LateMark], finish: Callable[[], object]) -> None:
        super().__init__()
        self._stream = stream
        self._finish = finish
        self._questions = 0
        self.done = False
        stream.append(self)

    def is_done(self) -> bool:
        self._questions += 1
        if self._questions >= 3:
            self.wait()
        return self.done

    def wait(self) -> None:
        while not self.done:
            first = self._stream.pop(0)
            with torch.inference_mode():
                first._finish()
            first.done = True

    def seconds_since(self, earlier: Mark) -> float:
        assert isinstance(earlier, LateMark)
        assert self.done and earlier.done, "a span was measured before it was over"
        return super().seconds_since(earlier)


class LateDevice(Device):
    """Records in `events` what the engine asks for. A captured graph is the function itself."""

    max_unread = 1

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.events: list[str] = []
        self._main: list[LateMark] = []
        self._side: list[LateMark] = []
        self._current = self._main

    def read_back(self, value: Tensor) -> tuple[Tensor, Mark]:
        self.events.append("read back")
        kept, host = value.clone(), torch.full_like(value, torch.nan)
        return host, LateMark(self._current, lambda: host.copy_(kept))

    def mark(self) -> Mark:
        return LateMark(self._current, lambda: None)

    @contextmanager
    def beside(self) -> Iterator[None]:
        self.events.append("beside")
        self._current = self._side
        try:
            yield
        finally:
            self._current = self._main

    def take_over(self, value: Tensor, made: Mark) -> None:
        assert isinstance(made, LateMark)
        assert made.done, "an image was admitted before it was encoded: its prefill would hold up all decoding"
        self.events.append("take over")

    def capture(self, functions: Sequence[Callable[[], Result]]) -> list[Callable[[], Result]]:
        return [self._capture(function) for function in functions]

    def _capture(self, function: Callable[[], Result]) -> Callable[[], Result]:
        function()

        def replay() -> Result:
            self.events.append("replay")
            return function()

        return replay
