"""The moments of a run that have a name in its log, so that a program can wait for them: `event` in each JSON line."""

from __future__ import annotations

from typing import Literal

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
