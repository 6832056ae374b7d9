"""An engine on a thread of the test's process, in place of a process of its own.

Everything else is as in a run: messages, channel, routing, replacement. It saves each run in a test the two seconds
that torch takes to load, and lets a test tamper with an engine's parts.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from transformers import AutoTokenizer  # noqa: F401 (not by two threads at once)

from batchocr.data import Failure
from batchocr.engine.serve import work
from batchocr.processes.channel import ChannelError, engine_end
from batchocr.processes.child import Death

_JOIN_S = 20.0


class EngineThread:
    """Stands for `pool.child.Child`."""

    def __init__(self, command: Sequence[str], sock: socket.socket, *, name: str) -> None:
        self.pid = os.getpid()
        self._thread = threading.Thread(target=self._run, args=(sock.dup(),), name="batchocr-engine", daemon=True)
        self._thread.start()

    def _run(self, sock: socket.socket) -> None:
        with sock, suppress(ChannelError):
            work(sock, engine_end(sock))

    def trim_output(self) -> None:
        pass

    def death(self) -> Death:
        return Death(Failure("crashed", "the engine has ended"))

    def kill(self) -> None:
        """Wait for the end of its step: the run's end of the channel is closed. One that hangs is left behind."""
        self._thread.join(_JOIN_S)
