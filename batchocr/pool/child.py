"""A worker as an operating system process, seen from the run: how it is started and killed, and what it died of."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from batchocr.data import Failure
from batchocr.machine import JOB_SIGNALS, num_oom_kills

# -P keeps the caller's folder off the path: a file named json.py in it would be mistaken for the library's.
WORKER_COMMAND = (sys.executable, "-P", "-m", "batchocr.worker")

_TAIL_BYTES = 2048
_MAX_OUTPUT_BYTES = 2**20
_DEATH_S = 2.0


@dataclass(frozen=True, slots=True)
class Death:
    """What a worker process died of. killed: by someone, or by the system for lack of memory, whoever took it."""

    failure: Failure
    killed: bool = False


class Child:
    """A running worker process.

    Its standard input is the lifeline: the kernel kills it when the run's end of that pipe closes, however the run
    ends. What it writes to standard output and error goes to a file in memory, for `death`.
    """

    def __init__(self, command: Sequence[str], sock: socket.socket) -> None:
        """Start it, with `sock` as its end of the channel. Raises OSError."""
        self._oom_kills_before = num_oom_kills()
        # No temporary folder need be usable. Closed by `kill`.
        self._output = os.fdopen(os.memfd_create("batchocr-worker-output", os.MFD_CLOEXEC), "r+b", buffering=0)
        try:
            with _born_deaf():
                self._process = subprocess.Popen(
                    [*command, str(sock.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=self._output,
                    stderr=self._output,
                    pass_fds=[sock.fileno()],
                    env=_environment(os.environ),
                )
        except OSError:
            self._output.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def trim_output(self) -> None:
        """Keep the output of a chatty library from filling the disk over days."""
        if os.fstat(self._output.fileno()).st_size > _MAX_OUTPUT_BYTES:
            self._output.seek(0)
            self._output.truncate()

    def death(self) -> Death:
        """What it died of and what it said last. Call this once it has closed its channel, and before `kill`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_S)
        code = self._process.returncode
        if code == -signal.SIGKILL:
            return _killing(self._oom_kills_before, num_oom_kills())
        said = self._last_words()
        return Death(Failure("crashed", _describe(code) + (f"; it said: {said}" if said else "")))

    def kill(self) -> None:
        """End it at once. It holds nothing that it would have to clean up."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel, as when a file server is gone
            self._process.wait(_DEATH_S)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._output.close()

    def _last_words(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        tail = os.pread(self._output.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return tail.decode("utf-8", "backslashreplace").strip()


@contextmanager
def _born_deaf() -> Iterator[None]:
    """Inside, a process that this thread starts gets no signals to its whole job until it can ignore them itself.

    It inherits the signal mask; for this thread, the signals wait.
    """
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, JOB_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)


def _describe(code: int | None) -> str:
    if code is None:
        return "the worker process has closed its channel"
    if code < 0:
        return f"the worker process was ended by {signal.Signals(-code).name}"
    return f"the worker process has ended with exit code {code}"


def _killing(oom_kills_before: int | None, oom_kills: int | None) -> Death:
    """Who sent the SIGKILL. Nothing says so, but the kernel counts the processes that it kills for lack of memory."""
    if oom_kills is not None and oom_kills == oom_kills_before:
        message = "the worker process was killed (SIGKILL), but not by the system for lack of memory"
        return Death(Failure("crashed", message), killed=True)
    likely = "the worker process was killed, most likely by the system for lack of memory"
    return Death(Failure("out_of_memory", f"{likely}: try fewer --workers, or a lower --worker-memory"), killed=True)


def _environment(caller: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment, changed so that a worker finds this very batchocr and uses one core."""
    environment = {**caller, "OMP_NUM_THREADS": "1"}
    root = str(Path(__file__).parents[2])
    # If installed, it is found anyway, and site-packages must not come before the standard library.
    if root != sysconfig.get_path("purelib"):
        # An empty entry would mean the caller's folder.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, caller.get("PYTHONPATH")]))
    return environment
