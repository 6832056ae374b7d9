"""Stderr as nothing but lines of JSON, whoever writes there: libraries in C, a thread that dies, Python's warnings."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from batchocr.cli.console import LogFormat

logger = logging.getLogger(__name__)

_PIPE_BYTES = 1 << 20
_LAST_WORDS_S = 1.0


def log_format_of(arguments: Sequence[str]) -> LogFormat:
    """The format that the command line asks for, known before it is parsed: what is wrong with it is logged too."""
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


@contextmanager
def json_stderr() -> Iterator[None]:
    """Inside, `sys.__stderr__` alone leads to stderr, for the log. What is written to `sys.stderr` or to its file
    descriptor goes through a pipe to the log, a warning for each line; after the end it is dropped."""
    descriptor = sys.stderr.fileno()
    sys.__stderr__ = open(os.dup(descriptor), "w", buffering=1)  # type: ignore[misc]  # noqa: SIM115 (to the end)
    read_end, write_end = os.pipe()
    with suppress(OSError):  # more than this user may have
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    # A library that fills the pipe while it keeps Python from reading it loses text, and does not hang.
    os.set_blocking(write_end, False)
    os.dup2(write_end, descriptor)
    os.close(write_end)
    reader = threading.Thread(target=_log_lines, args=(read_end,), name="stderr", daemon=True)
    reader.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), descriptor)
        reader.join(_LAST_WORDS_S)  # a process that was started may still hold the pipe


def _log_lines(read_end: int) -> None:
    with open(read_end, encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            if said := line.strip():
                logger.warning("%s", said)
