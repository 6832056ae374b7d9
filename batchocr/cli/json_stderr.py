"""Keeps stderr to lines of JSON, whatever writes to it: libraries in C, a thread that dies, Python's warnings."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from batchocr.machine import JOB_SIGNALS

logger = logging.getLogger(__name__)

_LAST_LINES_S = 1.0
_READ_BYTES = 1 << 16


class _SharedStderr(io.TextIOWrapper):
    """Stderr for this process and its forks, which a lock keeps from writing into each other's lines."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.BufferedWriter(io.FileIO(descriptor, "w")), line_buffering=True)
        self._lock = os.memfd_create("batchocr-stderr", os.MFD_CLOEXEC)

    def write(self, text: str) -> int:
        """Write whole lines."""
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            return super().write(text)
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


@contextmanager
def json_stderr() -> Iterator[None]:
    """Inside, `sys.__stderr__` alone leads to stderr, for the log. What is written to `sys.stderr` or to its file
    descriptor goes through a pipe to the log, a warning for each line; after the end it is dropped.

    A process of its own reads the pipe, and outlives this one: the last words of a crash in C come through. It is a
    fork, so there must be no threads yet.
    """
    descriptor = sys.stderr.fileno()
    sys.__stderr__ = _SharedStderr(os.dup(descriptor))  # type: ignore[misc]
    read_end, write_end = os.pipe()
    run = os.getpid()
    reader = os.fork()
    if reader == 0:
        os.close(write_end)
        _log_to_the_end(read_end, run)
    os.close(read_end)
    os.dup2(write_end, descriptor)
    os.close(write_end)
    try:
        yield
    finally:
        sys.stderr.flush()
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), descriptor)
        _await(reader)


def _log_to_the_end(read_end: int, run: int) -> NoReturn:
    """Log the lines that come through the pipe, until every process has closed it, or until the run has ended and the
    rest write nothing. run: the run's process id."""
    try:
        for number in JOB_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        # Else a program that reads the run's output until its end would wait for this process too.
        with open(os.devnull, "r+b") as nowhere:
            os.dup2(nowhere.fileno(), 0)
            os.dup2(nowhere.fileno(), 1)
        unfinished = b""
        while data := _next_bytes(read_end, run):
            *lines, unfinished = (unfinished + data).split(b"\n")
            for line in lines:
                _log(line)
        _log(unfinished)
    finally:
        os._exit(0)


def _next_bytes(read_end: int, run: int) -> bytes:
    """What was written next; nothing at the end."""
    while not select.select([read_end], [], [], _LAST_LINES_S)[0]:
        if os.getppid() != run:
            return b""
    return os.read(read_end, _READ_BYTES)


def _log(line: bytes) -> None:
    if said := line.decode("utf-8", "backslashreplace").strip():
        logger.warning("%s", said)


def _await(reader: int) -> None:
    """Wait until the last lines are logged, but not for long: another process may still have the pipe open."""
    deadline_s = time.monotonic() + _LAST_LINES_S
    while os.waitpid(reader, os.WNOHANG)[0] == 0 and time.monotonic() < deadline_s:
        time.sleep(0.01)
