"""How signals end the command: the run finishes what it has begun, or the process ends at once."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

from batchocr.config import Config
from batchocr.errors import ExitCode
from batchocr.job.progress import event
from batchocr.job.stop import SAME_KEYSTROKE_S, StopReason, StopSwitch
from batchocr.storage.temporary import delete_folders

logger = logging.getLogger(__name__)

LONGEST_ENDING_S = 10.0
"""How long a run that is stopped before its first page may take to end."""

_CODES: Final[dict[int, ExitCode]] = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.STOPPED}


@contextmanager
def stop_on_signals(stop: StopSwitch, config: Config) -> Iterator[None]:
    """Inside the block, SIGTERM and the first Ctrl-C stop the run in an orderly way, or at once before its first page;
    a second Ctrl-C always ends it at once."""
    came: set[int] = set()

    def end(number: int, _frame: FrameType | None) -> None:
        if number in came and (number == signal.SIGINT or stop.phase != "starting"):
            return  # the same keystroke, or `end_at_once` is called; the same stop, told to a process and to its group
        is_first, exit_code = not came, _CODES[number]
        came.add(number)
        reason: StopReason = "interrupted" if number == signal.SIGINT else "terminated"
        stop.request(reason)
        if stop.phase == "starting":
            if not is_first:
                os._exit(exit_code)
            _end_after(LONGEST_ENDING_S, exit_code)
            stopped = event("run_stopped", exit_code=exit_code)
            logger.info("%s before the first page: run the same command again to start it", reason, extra=stopped)
            raise SystemExit(exit_code)
        last = "the pages in flight are" if stop.phase == "reading" else "the output is"
        remark = "; Ctrl-C again to stop at once" if number == signal.SIGINT else ""
        said = event("stop_requested", reason=reason)
        logger.info("%s: stopping once %s finished%s", reason, last, remark, extra=said)

    def end_at_once() -> None:
        # Nothing is cleaned up, because that could mean waiting minutes for a step on a CPU: a journal may end in a
        # torn line, and the workers end with this process.
        _end_after(1.0, ExitCode.INTERRUPTED)  # the reader of stderr may be stuck
        stopped = event("run_stopped", exit_code=ExitCode.INTERRUPTED)
        logger.info("stopped at once; finished pages are kept: %s", how_to_continue(config), extra=stopped)
        os._exit(ExitCode.INTERRUPTED)

    with _handled(end, end_at_once):
        yield


@contextmanager
def clear_up_on_signals() -> Iterator[None]:
    """Inside the block, SIGTERM and Ctrl-C raise SystemExit with their exit code, so that what is half written or was
    fetched is removed; a second signal ends the process at once. For commands that can be run again at any time."""
    asked = False

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        exit_code = _CODES[number]
        if asked:
            os._exit(exit_code)
        asked = True
        stopped = event("run_stopped", exit_code=exit_code)
        logger.info("stopped before the end: run the same command again", extra=stopped)
        raise SystemExit(exit_code)

    with _handled(end, lambda: os._exit(ExitCode.INTERRUPTED)):
        yield


@contextmanager
def _handled(end: Callable[[int, FrameType | None], None], end_at_once: Callable[[], object]) -> Iterator[None]:
    """Inside the block, `end` handles both signals. It runs in the main thread, and not while that hangs in C: so
    another thread calls `end_at_once` on a second Ctrl-C."""
    arriving, told = os.pipe()
    os.set_blocking(told, False)

    def listen() -> None:
        interrupts_s: list[float] = []
        with open(arriving, "rb", buffering=0) as numbers:
            while number := numbers.read(1):
                if number[0] == signal.SIGINT:
                    interrupts_s.append(time.monotonic())
                    if interrupts_s[-1] - interrupts_s[0] > SAME_KEYSTROKE_S:
                        end_at_once()

    threading.Thread(target=listen, daemon=True).start()
    before = {number: signal.signal(number, end) for number in _CODES}
    descriptor = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        os.close(told)
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _end_after(seconds: float, exit_code: int) -> None:
    """End the process after so many seconds, if it has not ended before: the library that downloads models waits for
    whole files."""
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
    Python's own clean-up, during which a signal would end it without a message."""
    delete_folders()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(exit_code)
