"""A worker process: set up so that it ends when the run does, and never takes the run with it."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import resource
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from batchocr.input.render import open_document
from batchocr.machine import JOB_SIGNALS
from batchocr.protocol.base import PageProtocol
from batchocr.wire.channel import Channel, ChannelError, worker_end
from batchocr.wire.messages import FromWorker, Setup, ToWorker
from batchocr.worker.documents import DocumentCache
from batchocr.worker.page_worker import PageWorker

_LIFELINE = 0
"""Standard input: a pipe that carries nothing. The run holds its other end, which closes however the run ends."""


def serve(descriptor: int, make_protocol: Callable[[Setup], PageProtocol]) -> None:
    """Work for the run at the other end of the socket until the run closes it."""
    for number in JOB_SIGNALS:  # the run decides what becomes of the job
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    _die_with_the_run()
    _be_killed_first()
    os.set_inheritable(descriptor, False)
    with socket.socket(fileno=descriptor) as sock:
        channel = worker_end(sock)
        setup = _receive_setup(channel)
        if setup is not None:
            _limit_memory(setup.memory_bytes)
            documents = DocumentCache(partial(open_document, password=setup.password, dpi=setup.dpi))
            PageWorker(channel, make_protocol(setup), documents).run()


def _receive_setup(channel: Channel[FromWorker, ToWorker]) -> Setup | None:
    """The first message, leaving the others in the channel; None if the run is gone."""
    while not channel.closed:
        channel.wait()
        for message, _ in channel.receive():
            if not isinstance(message, Setup):
                raise ChannelError(f"the first message is no setup but {message.type!r}")
            return message
    return None


def _die_with_the_run() -> None:
    """Have the kernel kill this process when the run's end of the lifeline closes, even while C code hangs.

    PR_SET_PDEATHSIG would also do so when the thread that started the worker ends, though the run is still there. In a
    sandbox without signals from pipes, the end of the channel has to do.
    """
    with suppress(OSError):
        fcntl.fcntl(_LIFELINE, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(_LIFELINE, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(_LIFELINE, fcntl.F_SETFL, os.O_ASYNC)


def _limit_memory(limit_bytes: int) -> None:
    """Make allocations beyond the limit fail: then one page has an error, and the machine is unharmed.

    RLIMIT_DATA counts what this process alone may write to. RLIMIT_AS would count mapped files and libraries as well,
    and neither counts the pixels that are shared with the run: those are written, never mapped.
    """
    _, most_bytes = resource.getrlimit(resource.RLIMIT_DATA)
    if most_bytes != resource.RLIM_INFINITY:
        limit_bytes = min(limit_bytes, most_bytes)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, most_bytes))


def _be_killed_first() -> None:
    """When memory runs out, have the system kill a worker rather than the run. Best effort."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
