"""What a run says while it works: a bar on a terminal, a log line every ten seconds elsewhere, a line for each failure;
and the moments that have a name in the log, so that a program can wait for them: `event` in each JSON line."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal, Protocol

from tqdm import tqdm

from batchocr.data import PageResult

logger = logging.getLogger(__name__)

_BAR_INTERVAL_S = 0.2
_LINE_INTERVAL_S = 10.0
_BAR = "{percentage:3.0f}% |{bar}| {n_fmt} of {total_fmt} pages [{elapsed} < {remaining}, {rate_fmt}{postfix}]"
_BAR_WITHOUT_END = "{n_fmt} of {total_fmt} or more pages [{elapsed}, {rate_fmt}{postfix}]"


EventName = Literal[
    "run_started",
    "progress",
    "page_failed",
    "worker_lost",
    "stop_requested",
    "run_stopped",
    "run_finished",
    "run_failed",
]
"""Part of the interface, like the exit codes. The event of any other line is `message`."""


def event(name: EventName, **fields: object) -> dict[str, object]:
    """The `extra` of a log call that gives it this name. fields: what else its line of JSON holds."""
    return {"event": name, "fields": fields}


def log_failure(result: PageResult) -> None:
    """Log a row that failed. result: that row."""
    page = "" if result.page_index is None else f"page {result.page_index + 1} of "
    fields = {"source": result.source, "page_index": result.page_index, "error_kind": result.error_kind}
    logger.warning(
        "%s%s failed: %s: %s",
        page,
        result.source,
        result.error_kind,
        result.error_message,
        extra=event("page_failed", **fields, error_message=result.error_message, attempts=result.attempts),
    )


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is. done, failed: rows so far. planned: rows in all, as far as is known; more may come unless
    `all_planned`. read: how many of `done` are from this run; only they count towards its rate."""

    done: int
    planned: int
    all_planned: bool
    failed: int
    read: int


class Progress(Protocol):
    """Called by the run at least about twice a second; limits its own output."""

    def show(self, state: RunProgress) -> None: ...

    def close(self) -> None: ...


class ProgressCallback:
    """Tells a caller's function how far the run is."""

    def __init__(self, function: Callable[[RunProgress], object]) -> None:
        self._function = function

    def show(self, state: RunProgress) -> None:
        self._function(state)

    def close(self) -> None:
        """Do nothing: what was shown last is how far the run came."""


class ProgressBar:
    """A bar on stderr, with the mean pages/s and, once all pages are known, the time left. clock: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._drawn_s = -math.inf
        self._bar: Any = None

    def show(self, state: RunProgress) -> None:
        if self._clock() - self._drawn_s < _BAR_INTERVAL_S:
            return
        self._drawn_s = self._clock()
        bar_format = _BAR if state.all_planned else _BAR_WITHOUT_END
        with suppress(OSError):  # stderr's reader may be gone; the run continues
            if self._bar is None:
                self._bar = tqdm(
                    file=sys.stderr,
                    initial=state.done,
                    total=state.planned,
                    bar_format=bar_format,
                    unit=" pages",
                    dynamic_ncols=True,
                    leave=False,
                )
            self._bar.n, self._bar.total, self._bar.bar_format = state.done, state.planned, bar_format
            self._bar.initial = state.done - state.read
            self._bar.set_postfix_str(f"{state.failed} failed" if state.failed else "")

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            with suppress(OSError):
                self._bar.close()


class ProgressLog:
    """A log line when the work begins, then every ten seconds, and one at the end. clock: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_s: float | None = None
        self._logged_s = -math.inf
        self._state: RunProgress | None = None

    def show(self, state: RunProgress) -> None:
        self._first_s = self._clock() if self._first_s is None else self._first_s
        self._state = state
        if self._clock() - self._logged_s >= _LINE_INTERVAL_S:
            self._log(state, self._first_s)

    def close(self) -> None:
        """Log how far the run has come."""
        if self._state is not None and self._first_s is not None:
            self._log(self._state, self._first_s)

    def _log(self, state: RunProgress, first_s: float) -> None:
        self._logged_s = self._clock()
        rate = state.read / (self._logged_s - first_s) if self._logged_s > first_s else 0.0
        left = state.planned - state.done
        text = f"{state.done} of {state.planned}{'' if state.all_planned else ' or more'} pages"
        if state.failed:
            text += f", {state.failed} failed"
        if rate:
            text += f", {rate:.2f} pages/s"
        if rate and left and state.all_planned:
            text += f", about {timedelta(seconds=round(left / rate))} left"
        logger.info("%s", text, extra=event("progress", **asdict(state), pages_per_second=round(rate, 3)))
