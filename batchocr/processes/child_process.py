"""What a process of a run does first: it ends when the run does, leaves signals to it, and never takes it with it."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from batchocr.machine import JOB_SIGNALS

_LIFELINE = 0
"""The descriptor of standard input: a pipe that carries nothing. The run holds its other end, which closes however the
run ends."""


def belong_to_the_run(descriptor: int, *, oom_score: int) -> socket.socket:
    """The socket to the run, once this process is set up. oom_score: the higher, up to 1000, the sooner the system
    kills it when memory runs out; the run itself has 0."""
    for number in JOB_SIGNALS:  # the run decides what becomes of the job
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    _die_with_the_run()
    with suppress(OSError):  # best effort
        Path("/proc/self/oom_score_adj").write_text(str(oom_score), encoding="ascii")
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


def _die_with_the_run() -> None:
    """Have the kernel kill this process when the run's end of the lifeline closes, even while C code hangs.

    PR_SET_PDEATHSIG would also do so when the thread that started the process ends, though the run is still there. In a
    sandbox without signals from pipes, the end of the channel has to do.
    """
    with suppress(OSError):
        fcntl.fcntl(_LIFELINE, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(_LIFELINE, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(_LIFELINE, fcntl.F_SETFL, os.O_ASYNC)
