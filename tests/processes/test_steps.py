"""What a worker says about its steps, and what the run believes of it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from batchocr.data import Failure
from batchocr.processes.channel import Channel, worker_end
from batchocr.processes.child import Death
from batchocr.processes.messages import Began, Ended, FromWorker, OpenDocument, Setup, ToWorker
from batchocr.processes.running_clock import RunningClock
from batchocr.processes.worker import Worker

SETUP = Setup(dpi=100, password=None, max_new_tokens=8, penalties=True, memory_bytes=2**30)


class ChildInThisProcess:
    """The other end of a worker's channel."""

    channel: Channel[FromWorker, ToWorker]

    def __init__(self, command: object, sock: socket.socket, *, environment: object) -> None:
        ChildInThisProcess.channel = worker_end(sock.dup())

    def trim_output(self) -> None:
        pass

    def death(self) -> Death:
        return Death(Failure("crashed", "it is gone"))

    def kill(self) -> None:
        self.channel.close()


class ClockSetByHand(RunningClock):
    def now(self) -> float:
        return self.now_s

    now_s = 0.0


@pytest.mark.parametrize(("claimed_s", "believed_s"), [(3.0, 3.0), (40.0, 40.0), (3600.0, 46.0)])
def test_a_step_took_no_longer_than_the_job_was_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, claimed_s: float, believed_s: float
) -> None:
    monkeypatch.setattr("batchocr.processes.worker.Child", ChildInThisProcess)
    clock = ClockSetByHand()
    worker = Worker(SETUP, (), clock)
    worker.send(OpenDocument(1, str(tmp_path)))
    ChildInThisProcess.channel.send(Began(1, "open"))
    worker.receive()
    clock.now_s += 41.0
    ChildInThisProcess.channel.send(Ended(1, "open", claimed_s))
    assert worker.receive() == [Ended(1, "open", believed_s)]
    worker.close()
