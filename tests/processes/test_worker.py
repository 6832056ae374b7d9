"""Real worker processes: pages go through; whatever happens to a worker, the run goes on and nothing stays behind."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from batchocr.config import make_config
from batchocr.data import MAX_PAGES, Completion, Reading, Request
from batchocr.errors import BatchOcrError, TooLargeError
from batchocr.job import session
from batchocr.pages.documents import DocumentCache
from batchocr.pages.input.render import fingerprint
from batchocr.processes.channel import FROM_ENGINE, FROM_WORKER, TO_ENGINE, TO_WORKER, Channel
from batchocr.processes.child import Child
from batchocr.processes.messages import (
    Began,
    Completions,
    Ended,
    Failed,
    Finished,
    OpenDocument,
    Opened,
    ReadPage,
    Setup,
)
from batchocr.processes.pool import WorkerPool
from batchocr.processes.worker import Arrived, Asked, Loss
from tests.support import worker_entry
from tests.support.process_template import ForkedProcess
from tests.support.running import eventually, raising
from tests.support.worker_entry import GROWING, draw_page, write_script

pytestmark = pytest.mark.slow

SETUP = Setup(dpi=100, password=None, max_new_tokens=8, penalties=True, memory_bytes=2**30, protocol="mineru")
DEADLINE_S = 30.0
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(1, SETUP, worker_entry.COMMAND) as pool:
        yield pool


@dataclass
class Log:
    """What a pool's workers said, and which were lost."""

    said: list[Arrived] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)

    def outcomes(self) -> list[Arrived]:
        return [message for message in self.said if isinstance(message, Opened | Finished | Failed)]

    def spans(self) -> list[tuple[str, int, str]]:
        return [
            (message.type, message.task_id, message.activity)
            for message in self.said
            if isinstance(message, Began | Ended)
        ]


def run_until(pool: WorkerPool, is_done: Callable[[Log], bool], timeout_s: float = DEADLINE_S) -> Log:
    """Answer the workers' requests, each by its prompt and first byte, and replace workers that are lost."""
    log = Log()
    deadline = time.monotonic() + DEADLINE_S
    while not is_done(log):
        assert time.monotonic() < deadline, log
        for worker, message in pool.wait(0.05):
            log.said.append(message)
            if isinstance(message, Asked):
                worker.send(Completions(message.task_id, tuple(map(answer, message.batch.requests()))))
        log.losses += pool.replace_lost(timeout_s)
    return log


def answer(request: Request) -> Completion:
    pixels = request.pixels
    text = f"{request.prompt}:{pixels.width}x{pixels.height}:{pixels.data[1]}"
    return Completion(text, "stop", image_tokens=2, output_tokens=3, mean_probability=0.5, min_logprob=-1.0)


def outcomes(count: int) -> Callable[[Log], bool]:
    return lambda log: len(log.outcomes()) == count


def one_loss(log: Log) -> bool:
    return len(log.losses) == 1


def has_ended(pid: int) -> bool:
    """Whether the process ends within the deadline, even if nobody reaps it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    ended = bool(poll.poll(DEADLINE_S * 1000))
    os.close(descriptor)
    return ended


def test_a_worker_needs_no_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    command = (sys.executable, "-c", "raise SystemExit('last words')")
    child = Child(command, TO_WORKER, FROM_WORKER, name="worker", environment={})
    assert "it said: last words" in child.death().failure.message
    child.close()


def test_a_process_runs_on_the_cores_that_it_is_given_and_this_one_where_it_did() -> None:
    before = os.sched_getaffinity(0)
    command = (sys.executable, "-c", "import os; raise SystemExit(str(os.sched_getaffinity(0)))")
    for core in before:
        child = Child(command, TO_WORKER, FROM_WORKER, name="worker", cores={core})
        assert f"it said: {{{core}}}" in child.death().failure.message
        child.close()
    assert os.sched_getaffinity(0) == before


def test_a_document_is_opened_and_its_page_read_in_rounds(pool: WorkerPool, tmp_path: Path) -> None:
    path = draw_page(tmp_path / "a.png", "read")
    [worker] = pool.workers
    worker.send(OpenDocument(1, path))
    worker.send(ReadPage(2, path, 0))
    log = run_until(pool, outcomes(2))
    doc_id, size, mtime_ns = fingerprint(path)
    said = "whole:40x30:20 half:20x30:20 half:20x30:20"
    reading = Reading(said, (), image_tokens=6, output_tokens=9, width=40, height=30)
    assert log.outcomes() == [Opened(1, 1, doc_id, size, mtime_ns), Finished(2, reading)]
    assert log.spans() == [
        (moment, task_id, activity)
        for task_id, activity in [(1, "open"), (2, "render"), (2, "post-process"), (2, "post-process")]
        for moment in ("began", "ended")
    ]
    assert worker.task_ids == set()


def test_answers_go_before_new_pages(pool: WorkerPool, tmp_path: Path) -> None:
    path = draw_page(tmp_path / "a.png", "read")
    [worker] = pool.workers
    for task_id in range(30):
        worker.send(ReadPage(task_id, path, 0))
    log = run_until(pool, outcomes(30))
    last_begun = log.spans().index(("began", 29, "render"))
    assert ("ended", 0, "post-process") in log.spans()[:last_begun]
    assert {message.task_id for message in log.outcomes() if isinstance(message, Finished)} == set(range(30))


def test_a_document_that_grows_while_it_is_opened_has_no_version_to_speak_of(pool: WorkerPool, tmp_path: Path) -> None:
    pool.workers[0].send(OpenDocument(1, write_script(tmp_path / f"{GROWING}.script", None)))
    [failed] = run_until(pool, outcomes(1)).outcomes()
    assert isinstance(failed, Failed)
    assert (failed.failure.kind, failed.doc_id) == ("changed", None)


def test_a_bug_is_a_failed_page_that_says_where_and_the_worker_goes_on(pool: WorkerPool, tmp_path: Path) -> None:
    [worker] = pool.workers
    worker.send(ReadPage(1, draw_page(tmp_path / "raise.png", "raise"), 0))
    worker.send(ReadPage(2, draw_page(tmp_path / "read.png", "read"), 0))
    log = run_until(pool, outcomes(2))
    failed, read = log.outcomes()
    assert isinstance(failed, Failed) and isinstance(read, Finished)
    assert failed.failure.kind == "internal"
    assert failed.failure.message.startswith("a bug in batchocr: KeyError: 'a bug' (")
    assert "worker_entry.py, line" in failed.failure.message
    assert log.losses == []


def test_a_worker_that_claims_more_pages_than_the_file_has_bytes_is_replaced(pool: WorkerPool, tmp_path: Path) -> None:
    liar = pool.workers[0]
    (tmp_path / "many.script").write_text(json.dumps({"number": 0, "pages": [], "claims": 10**6}))
    liar.send(OpenDocument(1, str(tmp_path / "many.script")))
    log = run_until(pool, lambda log: bool(log.losses))
    assert log.outcomes() == []
    assert log.losses[0].failure.kind == "crashed"
    assert "claims 1,000,000 pages, more than the file has bytes" in log.losses[0].failure.message
    assert pool.workers[0] is not liar


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("segfault", ["SIGSEGV", "Fatal Python error: Segmentation fault", "worker_entry.py"]),
        ("abort", ["SIGABRT", "free(): invalid pointer", "Fatal Python error: Aborted", "worker_entry.py"]),
        ("exit", ["exit code 7"]),
        ("unnamed-signal", [f"ended by signal {signal.SIGRTMIN + 1}"]),
        ("lie", ["no message begins with b'no fr'"]),
    ],
)
def test_a_worker_that_is_lost_is_replaced_and_what_it_said_is_quoted(
    pool: WorkerPool, tmp_path: Path, behaviour: str, words: list[str]
) -> None:
    [worker] = pool.workers
    worker.send(ReadPage(1, draw_page(tmp_path / "bad.png", behaviour), 0))
    worker.send(ReadPage(2, draw_page(tmp_path / "read.png", "read"), 0))
    [loss] = run_until(pool, one_loss).losses
    assert (loss.worker, loss.failure.kind) == (worker, "crashed")
    assert loss.task_ids == {1, 2}
    assert loss.doing is not None
    assert (loss.doing.task_id, loss.doing.activity) == (1, "render")
    assert [each for each in words if each not in loss.failure.message] == [], loss.failure.message
    assert has_ended(worker.pid)
    pool.workers[0].send(ReadPage(2, str(tmp_path / "read.png"), 0))
    [outcome] = run_until(pool, outcomes(1)).outcomes()
    assert isinstance(outcome, Finished)


@pytest.mark.parametrize(("behaviour", "activity"), [("hang", "render"), ("hang-later", "post-process")])
def test_a_worker_that_hangs_is_replaced_when_its_time_is_over(
    pool: WorkerPool, tmp_path: Path, behaviour: str, activity: str
) -> None:
    [worker] = pool.workers
    worker.send(ReadPage(1, draw_page(tmp_path / "bad.png", behaviour), 0))
    [loss] = run_until(pool, one_loss, timeout_s=0.3).losses
    assert (loss.worker, loss.failure.kind) == (worker, "timeout")
    assert loss.doing is not None
    assert loss.doing.activity == activity
    assert loss.failure.message == f"it took longer than 0.3 s to {activity} (--page-timeout)"
    assert loss.busy_s > 0.3
    assert has_ended(worker.pid)


@pytest.mark.parametrize(
    ("memory_gib", "cores", "options", "expected"),
    [
        (128, 16, {}, (8, 4096)),
        (24, 16, {}, (8, 1536)),
        (4, 16, {}, (4, 512)),
        (0.5, 2, {}, (1, 512)),
        (24, 16, {"workers": 2}, (2, 4096)),
        (24, 16, {"worker_memory": "1G"}, (8, 1024)),
    ],
)
def test_all_workers_together_may_hold_half_the_memory(
    monkeypatch: pytest.MonkeyPatch,
    memory_gib: float,
    cores: int,
    options: dict[str, object],
    expected: tuple[int, int],
) -> None:
    monkeypatch.setattr(session, "usable_memory_bytes", lambda: int(memory_gib * 2**30))
    monkeypatch.setattr(session, "usable_cores", lambda: cores)
    config = make_config(options)
    assert (session.num_workers(config), session.worker_memory_bytes(config) // 2**20) == expected


def test_a_page_that_waits_for_the_engine_is_never_overdue(pool: WorkerPool, tmp_path: Path) -> None:
    pool.workers[0].send(ReadPage(1, draw_page(tmp_path / "a.png", "read"), 0))
    messages: list[Arrived] = []
    while not any(isinstance(message, Asked) for message in messages):
        messages += [message for _, message in pool.wait(DEADLINE_S)]
    assert pool.replace_lost(timeout_s=0.0) == []


def test_it_waits_no_longer_once_something_has_come_in_a_channel_beside(pool: WorkerPool) -> None:
    ours, its = socket.socketpair()
    with its:
        beside = Channel(ours, TO_ENGINE, FROM_ENGINE)
        its.send(b"x")
        started = time.monotonic()
        assert pool.wait(DEADLINE_S, beside=[beside]) == []
        assert time.monotonic() - started < DEADLINE_S / 2
        beside.close()


def test_the_memory_of_the_largest_worker_is_known_once_they_have_ended(tmp_path: Path) -> None:
    document = draw_page(tmp_path / "a.png", "read")
    with WorkerPool(2, SETUP, worker_entry.COMMAND) as pool:
        pool.workers[0].send(OpenDocument(1, document))
        run_until(pool, outcomes(1))
        assert pool.peak_worker_bytes is None
    assert pool.peak_worker_bytes is not None and 10e6 < pool.peak_worker_bytes < 10e9


def test_ctrl_c_while_workers_are_being_ended_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool(2, SETUP, worker_entry.COMMAND)
    pids = [worker.pid for worker in pool.workers]
    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr(ForkedProcess, "wait", raising(KeyboardInterrupt()))
        pool.close()
    assert all(map(has_ended, pids))
    pool.close()


def test_workers_that_crash_before_they_have_work_could_start_all_the_same(pool: WorkerPool) -> None:
    for _ in range(4):
        [worker] = pool.workers
        eventually(lambda worker=worker: pool.wait(0.1) == [] and worker.has_spoken)
        os.kill(worker.pid, signal.SIGABRT)
        [loss] = eventually(lambda: pool.wait(0.1) or pool.replace_lost(DEADLINE_S))
        assert loss.worker is worker


def test_workers_that_cannot_start_end_the_run_with_their_reason() -> None:
    command = (sys.executable, "-c", "import no_such_module")
    with WorkerPool(1, SETUP, command) as pool, pytest.raises(BatchOcrError, match="no_such_module"):
        run_until(pool, lambda log: False)


def test_a_command_that_is_not_there_is_an_error_and_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BatchOcrError, match="a worker process cannot be started: No such file"):
        WorkerPool(2, SETUP, ("/no/such/program",))
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_that_dies_does_not_stand_for_the_one_that_opens_a_document(tmp_path: Path) -> None:
    with WorkerPool(2, SETUP, worker_entry.COMMAND) as pool:
        doomed = pool.workers[1]
        os.kill(doomed.pid, signal.SIGKILL)
        while not doomed.channel.closed:
            pool.wait(DEADLINE_S)
        assert isinstance(pool.open_alone(draw_page(tmp_path / "a.png", "read"), DEADLINE_S), Opened)


def test_a_worker_ignores_what_is_sent_to_every_process_of_a_job_from_its_first_moment_on(tmp_path: Path) -> None:
    with WorkerPool(1, SETUP, worker_entry.COMMAND) as pool:
        [worker] = pool.workers
        for task_id in range(2):
            os.kill(worker.pid, signal.SIGINT)
            os.kill(worker.pid, signal.SIGTERM)
            worker.send(OpenDocument(task_id, draw_page(tmp_path / "a.png", "read")))
            assert run_until(pool, outcomes(1)).losses == []
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), "the caller's own signals wait no longer"


KILLED = """
import signal, sys
from batchocr.processes.messages import ReadPage, Setup
from batchocr.processes.pool import WorkerPool

path, *command = sys.argv[1:]
pool = WorkerPool(2, Setup(100, None, 8, True, 2**30), command)
pool.workers[0].send(ReadPage(1, path, 0))
while not pool.wait(30):
    pass
print(*(worker.pid for worker in pool.workers), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("behaviour", ["read", pytest.param("hang", marks=pytest.mark.long)])
def test_a_run_that_is_killed_leaves_no_worker(tmp_path: Path, behaviour: str) -> None:
    path = draw_page(tmp_path / "a.png", behaviour)
    command = [sys.executable, "-c", KILLED, path, *worker_entry.COMMAND]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pids = run.stdout.readline().split()
        run.kill()
    assert len(pids) == 2
    assert all(has_ended(int(pid)) for pid in pids)


def test_workers_outlive_the_thread_that_started_them(tmp_path: Path) -> None:
    """PR_SET_PDEATHSIG would end them with it."""
    started: list[WorkerPool] = []
    thread = threading.Thread(target=lambda: started.append(WorkerPool(1, SETUP, worker_entry.COMMAND)))
    thread.start()
    thread.join()
    with started[0] as pool:
        pool.workers[0].send(ReadPage(1, draw_page(tmp_path / "a.png", "read"), 0))
        assert run_until(pool, outcomes(1)).losses == []


def test_a_worker_loads_no_torch() -> None:
    code = "import sys, batchocr.pages.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_document_stays_open_until_four_others_were_asked_for(tmp_path: Path) -> None:
    opened: list[str] = []
    closed: list[str] = []

    def open_document(path: str, *, name: str) -> SimpleNamespace:
        opened.append(name := os.path.basename(name))
        return SimpleNamespace(page_count=1, close=lambda: closed.append(name))

    documents = DocumentCache(open_document)  # type: ignore[arg-type]
    for path in "abcde":
        (tmp_path / path).touch()
    for path in "abcdaea":
        with documents.open(str(tmp_path / path), None, None):
            pass
    assert (opened, closed) == ([*"abcde"], ["b"])


def test_a_document_of_more_pages_than_a_table_can_name_is_too_large(tmp_path: Path) -> None:
    closed: list[bool] = []
    many = SimpleNamespace(page_count=MAX_PAGES + 1, close=lambda: closed.append(True))
    documents = DocumentCache(lambda path, *, name: many)  # type: ignore[arg-type, return-value]
    (tmp_path / "a.gif").touch()
    with pytest.raises(TooLargeError, match="1,048,577 pages"), documents.open(str(tmp_path / "a.gif"), None, None):
        pass
    assert closed == [True]
