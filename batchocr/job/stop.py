"""How a run ends early: the one switch, set by signals, the clock or a caller, and read by the run's loop."""

from __future__ import annotations

import math
import time
from typing import Literal

StopReason = Literal["interrupted", "terminated", "stop_after", "requested"]
Phase = Literal["starting", "reading", "finishing"]

GRACE_S = 60.0
"""How long the work in flight may take to finish once a stop is requested; most schedulers kill soon after."""


class StopSwitch:
    """Says whether, and why, no more pages should be begun. Once set it stays set.

    stop_after_s: seconds from now after which it sets itself. other: a switch that sets this one too.
    """

    def __init__(self, stop_after_s: float | None = None, other: StopSwitch | None = None) -> None:
        self._other = other
        self._phase: Phase = "starting"
        self._reason: StopReason | None = None
        self._since_s = 0.0
        self._deadline_s = None if stop_after_s is None else time.monotonic() + stop_after_s

    def request(self, reason: StopReason = "requested") -> None:
        """Have the run finish its pages in flight and end. Safe to call from any thread, and from a signal handler."""
        if self._reason is None:
            self._since_s = time.monotonic()
            self._reason = reason

    @property
    def phase(self) -> Phase:
        """How far the run is; only while it is reading may there be pages in flight."""
        return self._phase

    def enter(self, phase: Phase) -> None:
        """Record how far the run is: what a stop means depends on it."""
        self._phase = phase

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
