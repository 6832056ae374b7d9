"""Workers and engines, also those of `worker_entry` and `harmful_kernels`, forked from processes that have loaded all.

Everything else is as in a run: each is a process of its own, which can be killed, with its limits and its lifeline. It
saves tests what Python takes to load the modules of a worker, and torch for an engine, which is most of what they do.
What starts them in another way, or with other variables for Python, starts them as in a run; so does a benchmark.

As a program, this is a process they are forked from: `python -m tests.support.process_template SOCKET batchocr.pages`.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, NoReturn

from batchocr.machine import JOB_SIGNALS
from batchocr.processes.child import ENGINE_COMMAND, WORKER_COMMAND, _finding_batchocr

MODULE = "tests.support.process_template"
PAGES_BEGUN = "BATCHOCR_TEST_PAGES_BEGUN"
"""The variable with the file into which workers write a line for each page that they begin."""

USE = f"""
import sys
sys.path.append({str(Path(__file__).parents[2])!r})
from batchocr.processes import child
from tests.support.process_template import ProcessTemplates
child.subprocess = ProcessTemplates()
"""
"""The beginning of a program whose workers and engines are to be forked from templates, too."""

_FOLDER = "BATCHOCR_TEST_TEMPLATES"
"""The variable that tells commands where the sockets of the templates are."""
_MODULES = (WORKER_COMMAND[-1], ENGINE_COMMAND[-1])
_ENTRY = str(Path(__file__).with_name("worker_entry.py"))
_HARMFUL = str(Path(__file__).with_name("harmful_kernels.py"))
_PROGRAMS = {
    WORKER_COMMAND: WORKER_COMMAND[-1],
    (*WORKER_COMMAND[:2], _ENTRY): WORKER_COMMAND[-1],
    ENGINE_COMMAND: ENGINE_COMMAND[-1],
    (*ENGINE_COMMAND[:2], _HARMFUL): ENGINE_COMMAND[-1],
}
"""What can be forked, and from the process with which modules."""
_INT = struct.Struct("i")
_LOADED_WITH = "loaded with"
"""A file beside the sockets: the variables that change what a process loads, as the templates had them."""


class ProcessTemplates:
    """Stands for the module `subprocess` in `batchocr.processes.child`.

    In a `with` block, the processes that others are forked from are there, for this process and those it starts.
    engine: what stands for an engine process instead, given its command.
    """

    PIPE, TimeoutExpired = subprocess.PIPE, subprocess.TimeoutExpired

    def __init__(self, engine: Callable[[Sequence[str]], Any] | None = None) -> None:
        self.engine = engine

    def __enter__(self) -> ProcessTemplates:
        self._folder = TemporaryDirectory()
        os.environ[_FOLDER] = self._folder.name
        Path(self._folder.name, _LOADED_WITH).write_text(json.dumps(_of_loading(_finding_batchocr(os.environ))))
        self._templates = [self._start(module) for module in _MODULES]
        return self

    def _start(self, module: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", MODULE, str(Path(self._folder.name, module)), module]
        environment = _finding_batchocr(os.environ)
        template = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert template.stdout is not None and template.stdout.readline() == b"ready\n"
        return template

    def __exit__(self, *_: object) -> None:
        for template in self._templates:
            template.communicate(timeout=60)
        del os.environ[_FOLDER]
        self._folder.cleanup()

    def Popen(self, command: Sequence[str], *, env: Mapping[str, str], **given: Any) -> Any:
        program = tuple(command[:-1])
        if self.engine is not None and program == ENGINE_COMMAND:
            return self.engine(command)
        if _FOLDER not in os.environ or program not in _PROGRAMS or self._loads_otherwise(env):
            return subprocess.Popen(command, env=env, **given)
        template = Path(os.environ[_FOLDER], _PROGRAMS[program])
        return ForkedProcess(template, command, env, given["stdout"].fileno(), given["pass_fds"])

    def _loads_otherwise(self, environment: Mapping[str, str]) -> bool:
        """Whether a process would load other things, or in another way, than the templates have."""
        return _of_loading(environment) != json.loads(Path(os.environ[_FOLDER], _LOADED_WITH).read_text())


def _of_loading(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LD_", "OMP_", "GOMP_"))}


class ForkedProcess:
    """What is used of `subprocess.Popen`."""

    def __init__(
        self, template: Path, command: Sequence[str], environment: Mapping[str, str], output: int, others: Sequence[int]
    ) -> None:
        """output: for what it writes. others: descriptors that it has under the same numbers."""
        lifeline, end = os.pipe()
        self.stdin: IO[bytes] = os.fdopen(end, "wb", buffering=0)
        self._template = socket.socket(socket.AF_UNIX)
        try:
            self._template.connect(str(template))
            order = [os.getpid(), os.getcwd(), list(command), dict(environment), list(others)]
            said = json.dumps(order).encode()
            socket.send_fds(self._template, [_INT.pack(len(said))], [lifeline, output, *others])
            self._template.sendall(said)
        finally:
            os.close(lifeline)
        self.returncode: int | None = None
        number, [self._pidfd], *_ = socket.recv_fds(self._template, _INT.size, 1)
        [self.pid] = _INT.unpack(number)

    def wait(self, timeout: float | None = None) -> int | None:
        if self.returncode is None:
            if not select.select([self._template], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a process", timeout or 0)
            [self.returncode] = _INT.unpack(self._template.recv(_INT.size))
            self._template.close()
            os.close(self._pidfd)
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)


def name_of_forked(owner: int) -> str:
    """What the processes are called, in the list of processes, that this one has started."""
    return f"of {owner}"


def _serve(path: str, module: str) -> None:
    """Fork a process for each message, and say what became of it, until standard input closes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, JOB_SIGNALS)  # as `Child` starts a process
    orders = socket.socket(socket.AF_UNIX)
    orders.bind(path)
    orders.listen(128)
    os.write(1, b"ready\n")
    before = dict(os.environ)
    _load(module)
    set_by_modules = {name: value for name, value in os.environ.items() if name not in before}
    running: dict[int, socket.socket] = {}
    while True:
        for ready in select.select([0, orders, *running], [], [])[0]:
            if ready == 0:
                return
            if ready in running:
                with running.pop(ready) as owner, suppress(OSError):  # the owner may be gone
                    owner.sendall(_INT.pack(_exit_code(os.waitid(os.P_PIDFD, ready, os.WEXITED))))
                os.close(ready)
                continue
            owner, _ = orders.accept()
            size, [*descriptors], *_ = socket.recv_fds(owner, _INT.size, 16)
            said = b""
            while len(said) < _INT.unpack(size)[0]:
                said += owner.recv(_INT.unpack(size)[0] - len(said))
            order = json.loads(said)
            order[3] = set_by_modules | order[3]
            if not (pid := os.fork()):
                _work(descriptors, *order)
            process = os.pidfd_open(pid)
            with suppress(OSError):
                socket.send_fds(owner, [_INT.pack(pid)], [process])
            for done in descriptors:
                os.close(done)
            running[process] = owner


def _exit_code(ended: Any) -> int:
    """As `subprocess` tells it: the number of a signal is negative."""
    return int(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)


def _load(module: str) -> None:
    """All that its processes would load one by one."""
    if module == ENGINE_COMMAND[-1]:
        from transformers import AutoTokenizer  # noqa: F401

        import batchocr.engine.serve
    else:
        import batchocr.pages.protocol.families.mineru
        import batchocr.pages.serve  # noqa: F401


def _work(
    descriptors: Sequence[int],
    owner: int,
    folder: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    others: Sequence[int],
) -> NoReturn:
    """Be the process."""
    code = 0
    try:
        # First to where no number is taken, as one may be another's new number.
        moved = [os.dup2(descriptor, 1000 + place) for place, descriptor in enumerate(descriptors)]
        targets = [0, 1, *others]
        for source, target in zip(moved, targets, strict=True):
            os.dup2(source, target)
        os.dup2(1, 2)
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            if descriptor not in (*targets, 2):
                with suppress(OSError):
                    os.close(descriptor)
        Path("/proc/self/comm").write_text(name_of_forked(owner))
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        _run(command)
    except BaseException:  # noqa: BLE001, as at the top of a program
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(command: Sequence[str]) -> None:
    program, descriptor = command[-2:]
    sys.argv = [program, descriptor]
    if program == WORKER_COMMAND[-1] and PAGES_BEGUN in os.environ:
        _note_pages(Path(os.environ[PAGES_BEGUN]))
    if program in _MODULES:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


def _note_pages(path: Path) -> None:
    from batchocr.pages.page_worker import PageWorker
    from batchocr.processes.messages import ReadPage

    read = PageWorker._read

    def note_and_read(worker: PageWorker, task: ReadPage) -> object:
        with path.open("ab", buffering=0) as file:
            file.write(b"page\n")
        return read(worker, task)

    PageWorker._read = note_and_read  # type: ignore[method-assign]


if __name__ == "__main__":
    _serve(*sys.argv[1:])
