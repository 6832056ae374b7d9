"""The moments of a run that its log names, so that a program can wait for them: `event` in every line of JSON."""

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
"""Part of the interface, as exit codes are. A line about anything else is a `message`."""


def event(name: EventName, **fields: object) -> dict[str, object]:
    """What a log call takes as `extra` to be known by this name. fields: what its line of JSON holds besides."""
    return {"event": name, "fields": fields}
