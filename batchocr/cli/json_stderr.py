"""Keeps stderr to lines of JSON, whatever writes to it: libraries in C, a thread that dies, Python's warnings."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

_LAST_LINES_S = 1.0


@contextmanager
def json_stderr() -> Iterator[None]:
    """Inside, `sys.__stderr__` alone leads to stderr, for the log. What is written to `sys.stderr` or to its file
    descriptor goes through a pipe to a thread, which logs a warning for each line; after the end it is dropped."""
    descriptor = sys.stderr.fileno()
    sys.__stderr__ = os.fdopen(os.dup(descriptor), "w", buffering=1)  # type: ignore[misc]
    read_end, write_end = os.pipe()
    os.dup2(write_end, descriptor)
    os.close(write_end)
    reader = threading.Thread(target=_log_lines, args=(read_end,), daemon=True)
    reader.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), descriptor)
        reader.join(_LAST_LINES_S)  # not for long: another process may still have the pipe open


def _log_lines(read_end: int) -> None:
    """Log the lines that come through the pipe, until every process has closed it."""
    with open(read_end, encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            if said := line.strip():
                logger.warning("%s", said)
