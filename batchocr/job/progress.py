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

from batchocr.data import PageResult, counted

logger = logging.getLogger(__name__)

_BAR_INTERVAL_S = 0.2
_LINE_INTERVAL_S = 10.0
_SLOW = 1.0
"""The pages/s below which the blocks read are told as well."""
_VERY_SLOW = 0.1
"""The pages/s below which the rate is told in seconds a page."""
_ENOUGH_S = 10.0
_ENOUGH_PAGES = 10
"""What must have been read before the time left is told, or a fifth of all: the first pages come late, and together."""

EventName = Literal[
    "run_started",
    "progress",
    "page_failed",
    "input_empty",
    "worker_lost",
    "stop_requested",
    "run_stopped",
    "run_finished",
    "run_failed",
]
"""The names of events in the log, part of the interface, like the exit codes. The event of any other line is
`message`."""


def event(name: EventName, **fields: object) -> dict[str, object]:
    """The `extra` of a log call that gives it this name. fields: what else its line of JSON holds."""
    return {"event": name, "fields": fields}


def log_failure(result: PageResult) -> None:
    """Log a row that failed. result: that row."""
    page = "" if result.page_index is None else f"page {result.page_index + 1} of "
    fields = {"source": result.source, "page_index": result.page_index, "error_kind": result.error_kind}
    reason = (result.error_message or "").removeprefix(f"{result.source} ")  # "a.pdf does not exist"
    logger.warning(
        "%s%s failed (%s): %s",
        page,
        result.source,
        result.error_kind,
        reason,
        extra=event("page_failed", **fields, error_message=result.error_message, attempts=result.attempts),
    )


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is."""

    done: int
    """Rows that are done so far."""
    planned: int
    """Rows in all, as far as is known; more may come unless `all_planned`."""
    all_planned: bool
    failed: int
    """Failed rows of this run alone."""
    read: int
    """Pages read by this run; only they count towards its rate."""
    degraded: int = 0
    blocks: int = 0
    """Blocks that the model has read in this run, of unfinished pages too."""


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
        """Do nothing: the last state shown is how far the run came."""


class ProgressBar:
    """A bar on stderr, with the mean rate and, once it can be told, the time left. clock: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_s: float | None = None
        self._drawn_s = -math.inf
        self._bar: Any = None

    def show(self, state: RunProgress) -> None:
        now_s = self._clock()
        self._first_s = now_s if self._first_s is None else self._first_s
        if now_s - self._drawn_s < _BAR_INTERVAL_S:
            return
        self._drawn_s = now_s
        # stderr's reader may be gone; the run continues. tqdm would then keep a lock that it takes itself, as it does
        # without a delay, and no other thread could log any more.
        with suppress(OSError), tqdm.get_lock():
            if self._bar is None:
                self._bar = tqdm(file=sys.stderr, bar_format=" ", dynamic_ncols=True, leave=False, delay=1e-9)
            self._bar.bar_format = _bar_format(state, now_s - self._first_s)
            self._bar.n, self._bar.total = state.done, state.planned
            self._bar.refresh(nolock=True)

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
        elapsed_s = self._logged_s - first_s
        text = ", ".join([_count(state), *_particulars(state, elapsed_s)])
        if (left_s := _left_s(state, elapsed_s)) is not None:
            text += f", about {timedelta(seconds=round(left_s))} left"
        told = {"pages_per_second": round(_rate(state, elapsed_s), 3), "seconds_left": left_s and round(left_s)}
        logger.info("%s", text, extra=event("progress", **asdict(state), **told))


def _bar_format(state: RunProgress, elapsed_s: float) -> str:
    """The bar with its text, which tqdm fills in: ` 25% |███       | 20 of 80 pages [0:20 < 1:00, 1.00 pages/s]`."""
    left_s = _left_s(state, elapsed_s)
    times = tqdm.format_interval(elapsed_s)
    if left_s is not None:
        times += f" < {tqdm.format_interval(left_s)}"
    text = f"{_count(state)} [{', '.join([times, *_particulars(state, elapsed_s)])}]"
    return f"{{percentage:3.0f}}% |{{bar}}| {text}" if state.all_planned and state.planned else text


def _count(state: RunProgress) -> str:
    if state.all_planned and not state.planned:
        return "no pages to read"
    if state.all_planned:
        return f"{state.done:,} of {counted(state.planned, 'page')}"
    return f"{state.done:,} of {state.planned:,} or more pages" if state.planned else "opening the documents"


def _particulars(state: RunProgress, elapsed_s: float) -> list[str]:
    """What else there is to say, but for the time left. Blocks tell that a run moves whose pages take long."""
    rate = _rate(state, elapsed_s)
    said = [f"{state.failed} failed"] if state.failed else []
    if state.degraded:
        said.append(f"{state.degraded} degraded")
    if state.blocks and rate < _SLOW:
        said.append(counted(state.blocks, "block"))
    if rate:
        said.append(f"{rate:.2f} pages/s" if rate >= _VERY_SLOW else f"{1 / rate:.0f} s a page")
    return said


def _rate(state: RunProgress, elapsed_s: float) -> float:
    """Pages/s that this run has read."""
    return state.read / elapsed_s if elapsed_s > 0 else 0.0


def _left_s(state: RunProgress, elapsed_s: float) -> float | None:
    """How long the rest will take; None if nothing is left, or if too little was read to tell."""
    left = state.planned - state.done
    enough = min(_ENOUGH_PAGES, (left + state.read) / 5)
    if not (left and state.all_planned and state.read and state.read >= enough and elapsed_s >= _ENOUGH_S):
        return None
    return left / _rate(state, elapsed_s)
