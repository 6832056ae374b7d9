"""The entry point of the command. It sets signal handlers and opens descriptors before it loads anything that takes
time.

It loads little of the standard library until the handlers are set: until then, a signal ends the process with another
exit code.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchocr.cli.console import LogFormat


def main() -> None:
    """Run the command and end the process with its exit code."""
    # As of `errors.ExitCode`, which takes longer to load. The commands set handlers of their own as soon as there is
    # something to be put in order.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(75))
    from batchocr.machine import open_standard_descriptors

    open_standard_descriptors()
    from batchocr.cli.main import run_command

    run_command(log_format_of(sys.argv[1:]))


def log_format_of(arguments: Sequence[str]) -> LogFormat:
    """The log format that the command line asks for, before it is parsed: errors of the command line are logged in it
    too."""
    flags = {"--json", "--log-format=json"}
    is_json = not flags.isdisjoint(arguments) or ("--log-format", "json") in pairwise(arguments)
    return "json" if is_json else "text"
