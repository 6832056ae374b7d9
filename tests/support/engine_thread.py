"""An engine on a thread of the test's process, in place of a process of its own.

Everything else is as in a run: messages, channel, routing, replacement. It saves each run in a test the two seconds
that torch takes to load, and lets a test tamper with an engine's parts.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from unittest import mock

from transformers import AutoTokenizer  # noqa: F401 (not by two threads at once)

from batchocr.engine import serve
from batchocr.processes.channel import FROM_ENGINE, TO_ENGINE, Channel, ChannelError

_JOIN_S = 20.0

# The test's process outlives its engines: what is garbage then, open files too, has to be found.
mock.patch.object(serve, "gc").start()


class EngineThread:
    """Stands for the `subprocess.Popen` of an engine."""

    stdin = None
    returncode = None

    def __init__(self, command: Sequence[str]) -> None:
        self.pid = os.getpid()
        sock = socket.socket(fileno=os.dup(int(command[-1])))
        self._thread = threading.Thread(target=self._run, args=(sock,), name="batchocr-engine", daemon=True)
        self._thread.start()

    def _run(self, sock: socket.socket) -> None:
        with sock, suppress(ChannelError):
            serve.work(sock, Channel(sock, FROM_ENGINE, TO_ENGINE))

    def kill(self) -> None:
        """Wait for the end of its step: the run's end of the channel is closed. One that hangs is left behind."""
        self._thread.join(_JOIN_S)

    def wait(self, timeout: float) -> None:
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise subprocess.TimeoutExpired("an engine", timeout)
