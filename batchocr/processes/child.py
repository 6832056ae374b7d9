"""A worker or an engine as a process of the operating system: how the run starts and ends it, and what it died of."""

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
from weakref import WeakSet

from batchocr.data import Failure
from batchocr.machine import JOB_SIGNALS, num_oom_kills

# -P keeps the caller's folder off the path: a file named json.py in it would be mistaken for the library's.
WORKER_COMMAND = (sys.executable, "-P", "-m", "batchocr.pages")
ENGINE_COMMAND = (sys.executable, "-P", "-m", "batchocr.engine")

_children: WeakSet[Child] = WeakSet()


def _leave_to_parent() -> None:
    """In a fork: close the ends of the lifelines, which would keep the processes alive when the run has ended."""
    for child in _children:
        child.leave()
    _children.clear()


os.register_at_fork(after_in_child=_leave_to_parent)

_TAIL_BYTES = 2048
_MAX_OUTPUT_BYTES = 2**20
_DEATH_S = 2.0


@dataclass(frozen=True, slots=True)
class Death:
    """What a process died of. killed: by someone, or by the system for lack of memory, whoever took it."""

    failure: Failure
    killed: bool = False


class Child:
    """A running process.

    Its standard input is the lifeline: the kernel kills it when the run's end of that pipe closes, however the run
    ends. What it writes to standard output and error goes to a file in memory, for `death`.
    """

    def __init__(
        self,
        command: Sequence[str],
        sock: socket.socket,
        *,
        name: str = "worker",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it, with `sock` as its end of the channel. name: what to call it. environment: what it has beside that
        of this process. Raises OSError."""
        self._name = name
        self._oom_kills_before = num_oom_kills()
        # No temporary folder need be usable. Closed by `kill`.
        self._output = os.fdopen(os.memfd_create(f"batchocr-{name}-output", os.MFD_CLOEXEC), "r+b", buffering=0)
        try:
            with _signals_blocked():
                self._process = subprocess.Popen(
                    [*command, str(sock.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=self._output,
                    stderr=self._output,
                    pass_fds=[sock.fileno()],
                    env=_finding_batchocr({**os.environ, **(environment or {})}),
                )
        except OSError:
            self._output.close()
            raise
        _children.add(self)

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
            return _killing(self._name, self._oom_kills_before, num_oom_kills())
        said = self._last_words()
        return Death(Failure("crashed", self._describe(code) + (f"; it said: {said}" if said else "")))

    def kill(self) -> None:
        """End it at once. It holds nothing that it would have to clean up."""
        self._process.kill()
        self.leave()
        with suppress(subprocess.TimeoutExpired):  # stuck in the kernel, as when a file server is gone
            self._process.wait(_DEATH_S)

    def leave(self) -> None:
        """Close what holds the process and its output, which go on."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._output.close()

    def _describe(self, code: int | None) -> str:
        if code is None:
            return f"the {self._name} process has closed its channel"
        if code < 0:
            return f"the {self._name} process was ended by {signal.Signals(-code).name}"
        return f"the {self._name} process has ended with exit code {code}"

    def _last_words(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        tail = os.pread(self._output.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return tail.decode("utf-8", "backslashreplace").strip()


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Inside, a process that this thread starts inherits a mask that blocks signals to the whole job, until it ignores
    them itself. Signals to this thread are delivered after the block."""
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, JOB_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)


def _killing(name: str, oom_kills_before: int | None, oom_kills: int | None) -> Death:
    """Who sent the SIGKILL. Nothing says so, but the kernel counts the processes that it kills for lack of memory."""
    if oom_kills is not None and oom_kills == oom_kills_before:
        message = f"the {name} process was killed (SIGKILL), but not by the system for lack of memory"
        return Death(Failure("crashed", message), killed=True)
    likely = f"the {name} process was killed, most likely by the system for lack of memory"
    return Death(Failure("out_of_memory", f"{likely}: try fewer --workers or --pages-in-flight"), killed=True)


def _finding_batchocr(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment, changed so that a process finds this very batchocr."""
    root = str(Path(__file__).parents[2])
    # If installed, it is found anyway, and site-packages must not come before the standard library.
    if root == sysconfig.get_path("purelib"):
        return environment
    # An empty entry would mean the caller's folder.
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))}
