"""What a worker and an engine have in common as the run sees them: a process that it starts, hears, and ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from pydantic import TypeAdapter

from batchocr.data import Failure
from batchocr.machine import JOB_SIGNALS, num_oom_kills
from batchocr.processes.channel import Channel, ChannelError, Received, Sent

Passed = TypeVar("Passed")

# -P keeps the caller's folder off the path: a file named json.py in it would be mistaken for the library's.
WORKER_COMMAND = (sys.executable, "-P", "-m", "batchocr.pages")
ENGINE_COMMAND = (sys.executable, "-P", "-m", "batchocr.engine")

_children: WeakSet[Child[Any, Any, Any]] = WeakSet()


def _leave_to_parent() -> None:
    """Close, in a fork, the ends of the lifelines, which would keep the processes alive when the run has ended."""
    for child in _children:
        child.leave()
    _children.clear()


os.register_at_fork(after_in_child=_leave_to_parent)

_QUOTED_BYTES = 2048
_DUMP_BYTES = 2**16
"""How many bytes of the end of a process's output are read: more than Python writes of a fatal error, a stack for each
thread."""
_MAX_OUTPUT_BYTES = 2**20
_DEATH_S = 2.0
_EXIT_CODE_S = 10.0
"""How long a process that has closed its channel may take to end: a busy machine is slow, and only the exit code says
why."""


@dataclass(frozen=True, slots=True)
class Death:
    """What a process died of."""

    failure: Failure
    killed: bool = False
    """Whether the process was killed by a SIGKILL from outside: of a user, or of the kernel's OOM killer."""


class Child(Generic[Sent, Received, Passed]):
    """A running process, and the run's end of a channel to it.

    Its standard input is the lifeline: the kernel kills it when the run's end of that pipe closes, however the run
    ends. What it writes to standard output and error goes to a file in memory, for `death`.
    """

    def __init__(
        self,
        command: Sequence[str],
        sends: TypeAdapter[Sent],
        receives: TypeAdapter[Received],
        *,
        name: str,
        environment: Mapping[str, str] | None = None,
        cores: Collection[int] = (),
    ) -> None:
        """Start the process. sends, receives: what the run sends, and receives. name: what to call the process.
        environment: its variables beside those of this process. cores: the cores on which it may run; empty for those
        of this process. Raises OSError."""
        self.fault: str | None = None
        """How the process broke the protocol, if it did; the channel is closed then."""
        self._name = name
        self._oom_kills_before = num_oom_kills()
        with ExitStack() as undo:
            # No temporary folder need be usable.
            output = os.memfd_create(f"batchocr-{name}-output", os.MFD_CLOEXEC)
            self._output = undo.enter_context(os.fdopen(output, "r+b", buffering=0))
            ours, its = socket.socketpair()
            self.channel = Channel(ours, sends, receives)
            undo.callback(self.channel.close)
            with its, _signals_blocked(), _on_cores(cores):
                self._process = subprocess.Popen(
                    [*command, str(its.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=self._output,
                    stderr=self._output,
                    pass_fds=[its.fileno()],
                    env=_finding_batchocr({**os.environ, **(environment or {})}),
                )
            undo.pop_all()
        _children.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    def receive(self) -> list[Passed]:
        """What the process has said since the last call, as `_follow` passes it on; also sends what is waiting. A
        process that breaks the protocol is lost."""
        passed: list[Passed] = []
        try:
            self.channel.flush()
            for message, descriptor in self.channel.receive():
                passed += self._follow(message, descriptor)
        except ChannelError as error:
            self._break_off(error)
        # A chatty library must not fill the memory over days.
        if os.fstat(self._output.fileno()).st_size > _MAX_OUTPUT_BYTES:
            self._output.seek(0)
            self._output.truncate()
        return passed

    def _follow(self, message: Received, descriptor: int | None) -> Sequence[Passed]:
        """Record a message, and return what is to be passed on of it. Owns the descriptor. Raises ChannelError if the
        message is out of turn."""
        raise NotImplementedError

    def _tell(self, message: Sent, descriptor: int | None = None) -> None:
        """Send a message to the process. Never blocks. The channel owns the descriptor from here on."""
        try:
            self.channel.send(message, descriptor)
        except ChannelError as error:
            self._break_off(error)

    def _break_off(self, error: ChannelError) -> None:
        self.fault = self.fault or str(error)
        self.channel.close()

    def death(self) -> Death:
        """What the process died of and what it said last. Call this once it has closed its channel, and before
        `close`."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_CODE_S)
        code = self._process.returncode
        if code == -signal.SIGKILL:
            return _killing(self._name, self._oom_kills_before, num_oom_kills())
        said = self._last_words(has_crashed=code is not None and code < 0)
        return Death(Failure("crashed", self._describe(code) + (f"; it said: {said}" if said else "")))

    def close(self) -> None:
        """End the process at once. It holds nothing that it would have to clean up."""
        self.channel.close()
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
        if code < 0:  # signals in real time have no name
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            return f"the {self._name} process was ended by {name}"
        return f"the {self._name} process has ended with exit code {code}"

    def _last_words(self, *, has_crashed: bool) -> str:
        """The end of the process's output. If it has crashed, and Python has written all its stacks: what was said
        before that, which may be the cause of an abort, the error, and the stack that it is about."""
        size = os.fstat(self._output.fileno()).st_size
        tail = os.pread(self._output.fileno(), _DUMP_BYTES, max(0, size - _DUMP_BYTES))
        before, fatal, dump = tail.rpartition(b"Fatal Python error: ")
        if has_crashed and fatal:
            error, _, stacks = dump.partition(b"\n\n")
            stack = stacks[max(0, stacks.find(b"Current thread ")) :]
            tail = before[-_QUOTED_BYTES // 2 :] + fatal + error + b"\n" + stack[: _QUOTED_BYTES // 2]
        return tail[-_QUOTED_BYTES:].decode("utf-8", "backslashreplace").strip()


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Inside, a process that this thread starts inherits a mask that blocks signals to the whole job, until that
    process ignores them itself. Signals to this thread are delivered after the block."""
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, JOB_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)


@contextmanager
def _on_cores(cores: Collection[int]) -> Iterator[None]:
    """Inside, this thread runs on these cores, if any are named, and so does a process that it starts, from its first
    instruction on: its memory is near them."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


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
