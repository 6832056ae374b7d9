"""How the command ends early: signals into an orderly end of the run, or into an immediate one."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from batchocr.config import Config
from batchocr.errors import ExitCode
from batchocr.job.interrupt import SAME_KEYSTROKE_S
from batchocr.job.progress import event
from batchocr.job.stop import StopReason, StopSwitch
from batchocr.storage.temporary import delete_folders

logger = logging.getLogger(__name__)

LONGEST_ENDING_S = 10.0
"""How long a run that is stopped before its first page may take to end."""


@contextmanager
def stop_on_signals(stop: StopSwitch, config: Config) -> Iterator[None]:
    """Inside the block, SIGTERM and the first Ctrl-C stop the run in an orderly way, or at once before its first page;
    a second Ctrl-C always ends it at once."""
    asked = False
    interrupted_s: float | None = None

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal interrupted_s
        if interrupted_s is None:
            interrupted_s = time.monotonic()
            request("interrupted", ExitCode.INTERRUPTED, "; Ctrl-C again to stop at once")
        elif time.monotonic() - interrupted_s > SAME_KEYSTROKE_S:
            end_at_once()

    def terminate(_number: int, _frame: FrameType | None) -> None:
        request("terminated", ExitCode.STOPPED, "")

    def request(reason: StopReason, exit_code: int, remark: str) -> None:
        nonlocal asked
        is_first, asked = not asked, True
        stop.request(reason)
        if stop.phase == "starting":
            if not is_first:
                os._exit(exit_code)
            _end_after(LONGEST_ENDING_S, exit_code)
            stopped = event("run_stopped", exit_code=exit_code)
            logger.info("%s before the first page: run the same command again to start it", reason, extra=stopped)
            raise SystemExit(exit_code)
        last = "the pages in flight are" if stop.phase == "reading" else "the output is"
        said = event("stop_requested", reason=reason)
        logger.info("%s: stopping once %s finished%s", reason, last, remark, extra=said)

    def end_at_once() -> None:
        # Nothing is cleaned up, because that could mean waiting minutes for a step on a CPU: a journal may end in a
        # torn line, and the workers end with this process.
        stopped = event("run_stopped", exit_code=ExitCode.INTERRUPTED)
        logger.info("stopped at once; finished pages are kept: %s", how_to_continue(config), extra=stopped)
        os._exit(ExitCode.INTERRUPTED)

    before = {signal.SIGINT: signal.signal(signal.SIGINT, interrupt)}
    before[signal.SIGTERM] = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def clear_up_on_signals() -> Iterator[None]:
    """Inside the block, SIGTERM and Ctrl-C raise SystemExit with their exit code, so that what is half written or was
    fetched is removed; the second one ends the process at once. For commands that can be run again at any time."""
    codes = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.STOPPED}
    asked = False

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        exit_code = codes[signal.Signals(number)]
        if asked:
            os._exit(exit_code)
        asked = True
        stopped = event("run_stopped", exit_code=exit_code)
        logger.info("stopped before the end: run the same command again", extra=stopped)
        raise SystemExit(exit_code)

    before = {number: signal.signal(number, end) for number in codes}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_after(seconds: float, exit_code: int) -> None:
    """End the process then, if it has not ended before: the library that downloads models waits for whole files."""
    timer = threading.Timer(seconds, os._exit, (exit_code,))
    timer.daemon = True
    timer.start()


def how_to_continue(config: Config, *, begun: bool = True) -> str:
    """What to do to continue a run that was stopped.

    begun: whether there is a row in the journal that would be lost by starting over.
    """
    flags = {"--overwrite": config.overwrite, "--no-resume": not config.resume}
    without = " and ".join(flag for flag, given in flags.items() if given and begun)
    return f"run the same command again{f', without {without},' if without else ''} to continue"


def leave(exit_code: int) -> NoReturn:
    """End the process without waiting for threads that are still at work, such as an engine in a step, and without
    Python's own clearing up, during which a signal would end it unsaid."""
    delete_folders()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(exit_code)
