"""Ctrl-C in a Python program that reads: the same grace as in the command, and then Python's KeyboardInterrupt."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from batchocr.job.progress import event
from batchocr.job.stop import StopSwitch

logger = logging.getLogger(__name__)

SAME_KEYSTROKE_S = 1.0
"""An interrupt this soon after another is the same one: `timeout -s INT` sends it to the process and to its group."""


@contextmanager
def finish_on_interrupt(stop: StopSwitch) -> Iterator[None]:
    """Inside the block, the first Ctrl-C while pages are in flight, or while the output is written, only stops the run;
    KeyboardInterrupt is raised when the block is through. Before the first page, and on a second Ctrl-C, it is raised
    at once.

    Does nothing outside of the main thread, nor if the caller has a handler of its own: that one decides.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
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
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if interrupted_s is not None:
        raise KeyboardInterrupt
