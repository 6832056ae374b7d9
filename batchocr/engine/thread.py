"""The thread that owns the engine and, with it, everything on the device."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from batchocr.data import Completion, Request
from batchocr.engine.decode_stage import Answers
from batchocr.engine.engine import Engine
from batchocr.engine.recovery import RecoveringEngine
from batchocr.errors import EngineError
from batchocr.running_clock import RunningClock
from batchocr.stats.meter import Meter

_SWITCH_INTERVAL_S = 0.0002
_STALL_S = 1800.0
"""A step takes seconds, or minutes with a real model on a slow CPU. One that takes this long will never end."""
_IMPATIENCE_S = 10.0


class _QuickSwitching:
    """Keeps the interpreter's switch interval short while any engine thread lives; there may be several.

    Otherwise an engine thread would wait 5 ms for every small operation while another Python thread is busy.
    """

    def __init__(self) -> None:
        self._users = 0
        self._before_s = 0.0
        self._lock = threading.Lock()

    def begin(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before_s, _SWITCH_INTERVAL_S))
            self._users += 1

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                sys.setswitchinterval(self._before_s)


_quick_switching = _QuickSwitching()


class EngineThread:
    """Runs an engine until closed. Two queues join it to the caller's thread; there are no locks.

    meter: written by the engine thread until `close()` returns, then the caller's. notify: called from the engine
    thread whenever `finished()` has something new; must not block.
    """

    def __init__(self, engine: Engine, meter: Meter, notify: Callable[[], None]) -> None:
        self._engine = RecoveringEngine(engine)
        self._meter = meter
        self._notify = notify
        self._submitted: SimpleQueue[tuple[int, Request] | None] = SimpleQueue()
        self._finished: SimpleQueue[tuple[int, Completion]] = SimpleQueue()
        self._error: Exception | None = None
        self._step: object | None = None
        self._watched_step: object | None = None
        self._watched_since_s = 0.0
        self._clock = RunningClock()
        _quick_switching.begin()
        self._thread = threading.Thread(target=self._run, name="batchocr-engine", daemon=True)
        self._thread.start()

    def submit(self, request_id: int, request: Request) -> None:
        self._submitted.put((request_id, request))

    def finished(self) -> Answers:
        """All completions since the last call. Raises EngineError if the engine broke or hangs."""
        if isinstance(self._error, EngineError):
            raise self._error
        if self._error is not None:
            raise EngineError(f"the engine failed: {type(self._error).__name__}: {self._error}") from self._error
        if self._stalled:
            raise EngineError(
                f"the engine has been at one step for {_STALL_S / 60:.0f} minutes, as when a GPU hangs: "
                "finished pages are kept; check the device, then run the same command again"
            )
        completions = []
        while not self._finished.empty():
            completions.append(self._finished.get())
        return completions

    def close(self, *, patient: bool = True) -> bool:
        """End the thread after the current step and drop all unfinished requests.

        Returns whether the engine may be used again. It may not if it broke, nor if its thread had to be left behind:
        because the step hangs or, unless `patient`, because it takes over ten seconds.
        """
        self._submitted.put(None)
        _quick_switching.end()
        give_up_s = math.inf if patient else time.monotonic() + _IMPATIENCE_S
        while self._thread.is_alive() and not self._stalled and time.monotonic() < give_up_s:
            self._thread.join(0.5)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            return False
        self._engine.clear()
        return True

    @property
    def _stalled(self) -> bool:
        """Whether the step that has been under way at every recent look takes too long."""
        step, now_s = self._step, self._clock.now()
        if step is not self._watched_step:
            self._watched_step, self._watched_since_s = step, now_s
        return step is not None and now_s - self._watched_since_s > _STALL_S

    def _run(self) -> None:
        try:
            while self._take_requests():
                self._step = object()
                finished = self._engine.step(self._meter)
                self._step = None
                self._deliver(finished)
        except Exception as error:  # noqa: BLE001 (boundary: the engine's step, what recovery gave up on)
            self._error = error
            self._notify()

    def _take_requests(self) -> bool:
        """Hand submitted requests to the engine; wait for one if it has no work. Returns False once closed."""
        while True:
            try:
                item = self._submitted.get_nowait() if self._engine.has_work else self._wait()
            except Empty:
                return True
            if item is None:
                return False
            request_id, request = item
            refused = self._engine.submit(request_id, request)
            if refused is not None:
                self._deliver([(request_id, refused)])

    def _wait(self) -> tuple[int, Request] | None:
        started = time.perf_counter()
        item = self._submitted.get()
        self._meter.starved_s += time.perf_counter() - started
        return item

    def _deliver(self, finished: Answers) -> None:
        for item in finished:
            self._finished.put(item)
        if finished:
            self._notify()
