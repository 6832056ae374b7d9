"""A worker process from its first message to its last."""

from __future__ import annotations

import os
import resource
from contextlib import closing
from functools import partial

from batchocr.pages.documents import DocumentCache
from batchocr.pages.input.containers import Containers
from batchocr.pages.input.render import open_document
from batchocr.pages.page_worker import PageWorker
from batchocr.pages.protocol.base import PageProtocol
from batchocr.pages.protocol.families import make_protocol
from batchocr.processes.channel import FROM_WORKER, TO_WORKER, Channel
from batchocr.processes.child_process import belong_to_the_run
from batchocr.processes.messages import Setup

_OOM_SCORE = 1000
"""When memory runs out, the system kills a worker first, before an engine or the run."""


def serve(descriptor: int) -> None:
    """Work for the run at the other end of the socket until the run closes it."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # onnxruntime, from 1.29 on, reports each model to its makers
    with belong_to_the_run(descriptor, oom_score=_OOM_SCORE) as sock:
        channel = Channel(sock, FROM_WORKER, TO_WORKER, blocking=True)
        if (setup := channel.receive_one(Setup)) is not None:
            _limit_memory(setup.memory_bytes)
            opening = partial(open_document, password=setup.password, dpi=setup.dpi, text_layer=setup.text_layer)
            with closing(DocumentCache(opening, setup.page_timeout_s, Containers(setup))) as documents:
                PageWorker(channel, _make_protocol(setup), documents, setup.orientation).run()


def _make_protocol(setup: Setup) -> PageProtocol | None:
    if setup.protocol == "none":
        return None
    if setup.protocol == "lines":
        from batchocr.pages.protocol.second_reader import SecondReader  # an extra

        return SecondReader()
    return make_protocol(setup)


def _limit_memory(limit_bytes: int) -> None:
    """Make allocations beyond the limit fail: then one page has an error, and the machine is unharmed.

    RLIMIT_DATA counts what this process alone may write to. RLIMIT_AS would count mapped files and libraries as well,
    and neither counts the pixels that are shared with the run: those are written, never mapped.
    """
    _, most_bytes = resource.getrlimit(resource.RLIMIT_DATA)
    if most_bytes != resource.RLIM_INFINITY:
        limit_bytes = min(limit_bytes, most_bytes)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, most_bytes))
