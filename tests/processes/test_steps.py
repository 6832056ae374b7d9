"""What a worker says about its steps, and what the run believes of it. Its clock stands still while it is suspended."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from batchocr.processes import child
from batchocr.processes.channel import FROM_WORKER, TO_WORKER, Channel
from batchocr.processes.messages import Began, Ended, FromWorker, OpenDocument, Setup, ToWorker
from batchocr.processes.running_clock import RunningClock
from batchocr.processes.worker import Worker

SETUP = Setup(dpi=100, password=None, max_new_tokens=8, penalties=True, memory_bytes=2**30, protocol="mineru")


class WorkerInThisProcess:
    """Stands for a process that would have the other end of a worker's channel."""

    stdin = None
    channel: Channel[FromWorker, ToWorker]

    def __init__(self, command: Sequence[str], **_: object) -> None:
        its = socket.socket(fileno=os.dup(int(command[-1])))
        WorkerInThisProcess.channel = Channel(its, FROM_WORKER, TO_WORKER, blocking=True)

    def kill(self) -> None:
        self.channel.close()

    def wait(self, timeout: float) -> None:
        pass


class ClockSetByHand(RunningClock):
    def now(self) -> float:
        return self.now_s

    now_s = 0.0


@pytest.mark.parametrize(("claimed_s", "believed_s"), [(3.0, 3.0), (40.0, 40.0), (3600.0, 46.0)])
def test_a_step_took_no_longer_than_the_job_was_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, claimed_s: float, believed_s: float
) -> None:
    monkeypatch.setattr(child.subprocess, "Popen", WorkerInThisProcess)
    clock = ClockSetByHand()
    worker = Worker(SETUP, (), clock)
    worker.send(OpenDocument(1, str(tmp_path)))
    WorkerInThisProcess.channel.send(Began(1, "open"))
    worker.receive()
    clock.now_s += 41.0
    WorkerInThisProcess.channel.send(Ended(1, "open", claimed_s))
    assert worker.receive() == [Ended(1, "open", believed_s)]
    worker.close()


def test_a_long_time_in_which_nobody_looked_hardly_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    real_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: real_s)
    clock = RunningClock()
    began_s = clock.now()
    for _ in range(40):
        real_s += 0.5
        now_s = clock.now()
    assert now_s - began_s == pytest.approx(20)
    real_s += 3600
    assert clock.now() - now_s == pytest.approx(5)
