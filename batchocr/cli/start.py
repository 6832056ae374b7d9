"""The entry point of the command. It sets signal handlers and opens descriptors before it loads anything that takes
time.

It loads little of the standard library until the handlers are set: until then, a signal ends the process without a
message.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchocr.cli.console import LogFormat

_ENDINGS = {signal.SIGINT: ("interrupted", 130), signal.SIGTERM: ("terminated", 75)}
"""The message and the exit code for each signal. The codes are those of `errors.ExitCode`, which takes longer to
load."""


def main() -> None:
    """Run the command and end the process with its exit code."""
    log_format = log_format_of(sys.argv[1:])
    end_on_signals(log_format)
    from batchocr.machine import open_standard_descriptors

    open_standard_descriptors()
    from batchocr.cli.main import run_command

    run_command(log_format)


def end_on_signals(log_format: LogFormat) -> None:
    """From now on SIGTERM and Ctrl-C end the process at once, with their exit code and a line that says so. The
    commands set handlers of their own as soon as there is something to be put in order."""

    def end(number: int, _frame: FrameType | None) -> None:
        reason, exit_code = _ENDINGS[signal.Signals(number)]
        said = f"{reason} before the end: run the same command again"
        if log_format == "json":
            when = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
            event = f'"level": "info", "event": "run_stopped", "message": "{said}", "exit_code": {exit_code}'
            line = f'{{"time": "{when}", {event}}}'
        else:
            line = f"batchocr: {said}"
        if sys.__stderr__ is not None:
            with suppress(OSError):  # nobody may be left to tell
                os.write(sys.__stderr__.fileno(), f"{line}\n".encode())
        os._exit(exit_code)

    for number in _ENDINGS:
        signal.signal(number, end)


def log_format_of(arguments: Sequence[str]) -> LogFormat:
    """The log format that the command line asks for, before it is parsed: errors of the command line are logged in it
    too."""
    found: LogFormat = "text"
    for number, argument in enumerate(arguments):
        if argument == "--":
            break
        name, _, value = argument.partition("=")
        if name == "--log-format":
            following = value or "".join(arguments[number + 1 : number + 2])
            found = "json" if following == "json" else "text"
        elif argument == "--json":
            found = "json"
    return found
