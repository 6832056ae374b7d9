"""How a run ends early: the one switch, set by signals, the clock or a caller, and read by the run's loop."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal

from batchocr.job.progress import event

logger = logging.getLogger(__name__)

StopReason = Literal["interrupted", "terminated", "stop_after", "requested"]
Phase = Literal["starting", "reading", "finishing"]

GRACE_S = 60.0
"""How long the work in flight may take to finish once a stop is requested; most job schedulers kill soon after."""

SAME_KEYSTROKE_S = 1.0
"""The seconds within which a second interrupt is the same one: `timeout -s INT` sends it to the process and to its
group."""


class StopSwitch:
    """Says whether, and why, no more pages should be begun. Once set it stays set.

    It is made when the run begins. stop_after_s: seconds from now after which it sets itself. other: a switch that sets
    this one too.
    """

    def __init__(self, stop_after_s: float | None = None, other: StopSwitch | None = None) -> None:
        self.began_s = time.monotonic()
        """When the run began."""
        self.phase: Phase = "starting"
        """How far the run is: it decides what a stop means; only while the run is reading may there be pages in
        flight."""
        self._other = other
        self._reason: StopReason | None = None
        self._since_s = 0.0
        self._deadline_s = None if stop_after_s is None else self.began_s + stop_after_s

    def request(self, reason: StopReason = "requested") -> None:
        """Have the run finish its pages in flight and end. Safe to call from any thread, and from a signal handler."""
        if self._reason is None:
            self._since_s = time.monotonic()
            self._reason = reason

    @property
    def reason(self) -> StopReason | None:
        """Why the run should stop; None while it should continue."""
        if self._reason is None and self._deadline_s is not None and time.monotonic() >= self._deadline_s:
            self.request("stop_after")
        if self._reason is None and self._other is not None and self._other.reason is not None:
            self.request(self._other.reason)
        return self._reason

    def end_grace(self) -> None:
        """Let the run wait no longer for the work in flight."""
        self._since_s = -math.inf

    @property
    def grace_is_over(self) -> bool:
        """Whether the work in flight has had its time to finish."""
        return self.reason is not None and time.monotonic() - self._since_s > GRACE_S


@contextmanager
def finish_on_interrupt(stop: StopSwitch) -> Iterator[StopSwitch]:
    """Let a Python program have the grace of the command: inside the block, the first Ctrl-C while pages are in flight,
    or while the output is written, only stops the run, and KeyboardInterrupt is raised at the end of the block. Before
    the first page, and on a second Ctrl-C, it is raised at once.

    Does nothing outside of the main thread, or if the caller has a handler of its own.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield stop
        return
    interrupted_s: float | None = None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted_s
        before_s, interrupted_s = interrupted_s, time.monotonic()
        if before_s is not None and interrupted_s - before_s < SAME_KEYSTROKE_S:
            interrupted_s = before_s
            return
        if before_s is not None or stop.phase == "starting":
            stop.end_grace()
            signal.default_int_handler(number, frame)
        stop.request("interrupted")
        last = "the pages in flight are" if stop.phase == "reading" else "the output is"
        said = event("stop_requested", reason="interrupted")
        logger.info("interrupted: stopping once %s finished; Ctrl-C again to stop at once", last, extra=said)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if interrupted_s is not None:
        raise KeyboardInterrupt
