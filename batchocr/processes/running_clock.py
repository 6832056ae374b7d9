"""A clock for time limits on other processes, which stands still while this process is suspended."""

from __future__ import annotations

import time

_MOST_S = 5.0


class RunningClock:
    """Counts at most five seconds between two calls of `now`, so whoever uses it for limits must call more often.

    A job that a scheduler suspends for an hour, or a user with Ctrl-Z, has not been slow for an hour. Belongs to one
    thread.
    """

    def __init__(self) -> None:
        self._looked_s = time.monotonic()
        self._total_s = 0.0

    def now(self) -> float:
        """Seconds since some moment."""
        looked_s = time.monotonic()
        self._total_s += min(looked_s - self._looked_s, _MOST_S)
        self._looked_s = looked_s
        return self._total_s
