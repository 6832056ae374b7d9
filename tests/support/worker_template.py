"""Worker processes, real ones and those of `worker_entry`, forked from one that has loaded all they need.

Everything else is as in a run: each is a process of its own, which can be killed, with its limits and its lifeline. It
saves each worker in a test the second and more that Python takes to load its modules, which is most of what tests do.
What starts workers in another way, or with another PYTHONPATH, starts them as in a run.

As a program, this is the process they are forked from: `python -m tests.support.worker_template FD batchocr.pages`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from batchocr.machine import JOB_SIGNALS
from batchocr.processes.child import WORKER_COMMAND
from tests.support import worker_entry

MODULE = "tests.support.worker_template"
_INT = struct.Struct("i")
_ROOT = Path(__file__).parents[2]


class WorkerTemplate:
    """Stands for the module `subprocess` in `batchocr.processes.child`; in a `with` block."""

    PIPE, TimeoutExpired = subprocess.PIPE, subprocess.TimeoutExpired

    def __enter__(self) -> WorkerTemplate:
        self._ours, theirs = socket.socketpair()
        with theirs:
            command = [*WORKER_COMMAND[:-1], MODULE, str(theirs.fileno()), WORKER_COMMAND[-1]]
            self._environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=self._environment)
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()
        self._process.wait(10)

    def Popen(self, command: Sequence[str], *, env: Mapping[str, str], **given: Any) -> Any:
        program = tuple(command[:-1])
        if program not in (WORKER_COMMAND, worker_entry.COMMAND) or self._loads_otherwise(env):
            return subprocess.Popen(command, env=env, **given)
        return ForkedProcess(self._ours, given["stdout"].fileno(), list(command), env)

    def _loads_otherwise(self, environment: Mapping[str, str]) -> bool:
        names = {name for name in environment.keys() | self._environment if name.startswith(("PYTHON", "LD_"))}
        return any(environment.get(name) != self._environment.get(name) for name in names)


class ForkedProcess:
    """What is used of `subprocess.Popen`."""

    def __init__(
        self, template: socket.socket, output: int, command: list[str], environment: Mapping[str, str]
    ) -> None:
        lifeline, end = os.pipe()
        self._status, status = os.pipe()
        self.stdin: IO[bytes] = os.fdopen(end, "wb", buffering=0)
        try:
            said = json.dumps([os.getcwd(), command, dict(environment)]).encode()
            socket.send_fds(template, [_INT.pack(len(said))], [lifeline, output, int(command[-1]), status])
            template.sendall(said)
        finally:
            os.close(lifeline)
            os.close(status)
        self.returncode: int | None = None
        [self.pid] = _INT.unpack(os.read(self._status, _INT.size))
        self._pidfd = os.pidfd_open(self.pid)

    def wait(self, timeout: float | None = None) -> int | None:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a worker", timeout or 0)
            [status] = _INT.unpack(os.read(self._status, _INT.size))
            self.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._status)
            os.close(self._pidfd)
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


def _serve(descriptor: int) -> None:
    """Fork a worker for each message, and say what became of it."""
    import batchocr.pages.__main__ as worker
    import batchocr.pages.protocol.mineru  # noqa: F401

    signal.pthread_sigmask(signal.SIG_BLOCK, JOB_SIGNALS)  # as `Child` starts a worker
    orders = socket.socket(fileno=descriptor)
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([orders, *running], [], [])[0]:
            if ready is not orders:
                pid, status = running.pop(ready)
                os.write(status, _INT.pack(os.waitpid(pid, 0)[1]))
                os.close(status)
                os.close(ready)
                continue
            size, descriptors, *_ = socket.recv_fds(orders, _INT.size, 4)
            if not size:
                return
            lifeline, output, sock, status = descriptors
            said = b""
            while len(said) < _INT.unpack(size)[0]:
                said += orders.recv(_INT.unpack(size)[0] - len(said))
            folder, command, environment = json.loads(said)
            if not (pid := os.fork()):
                _work(worker, lifeline, output, sock, folder, command, environment)
            os.write(status, _INT.pack(pid))
            for done in (lifeline, output, sock):
                os.close(done)
            running[os.pidfd_open(pid)] = (pid, status)


def _work(
    worker: Any,
    lifeline: int,
    output: int,
    sock: int,
    folder: str,
    command: Sequence[str],
    environment: Mapping[str, str],
) -> NoReturn:
    """Be a worker."""
    code = 0
    try:
        for source, target in ((lifeline, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.closerange(3, sock)
        os.closerange(sock + 1, 2**20)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        if tuple(command[:-1]) == worker_entry.COMMAND:
            sys.argv = ["", str(sock)]
            worker_entry.main(sock)
        else:
            worker.serve(sock, worker.make_protocol)
    except BaseException:  # noqa: BLE001, as at the top of a program
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
