"""A job to be interrupted: PDFs, a model, the table of an uninterrupted run, and the progress of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

import batchocr
from batchocr import PageResult, Report
from tests.support.running import command, draw_pdf, eventually, make_quick_model, num_rows, read_rows, workers_of

PAGES_IN_FLIGHT = 4
FULL = os.environ.get("BATCHOCR_FULL") == "1"
OPTIONS = {"dpi": 72, "workers": 2, "pages_in_flight": PAGES_IN_FLIGHT, "max_degraded_rate": 1}


@dataclass(frozen=True)
class Job:
    """What is read, and the rows of an uninterrupted run."""

    model: Path
    documents: Path
    rows: list[PageResult]
    options: Mapping[str, object] = field(default_factory=lambda: OPTIONS)

    def run(self, out: str | Path, **options: object) -> Report:
        """Start or continue the job in this process, and run it to its end."""
        return batchocr.run(self.documents, out=out, model=self.model, **{**self.options, **options})

    def arguments(self, out: str | Path, *flags: str | Path) -> list[str | Path]:
        """The arguments of the command that does the same."""
        options = [f"--{name.replace('_', '-')}={value}" for name, value in self.options.items()]
        return [self.documents, "--out", out, "--model", self.model, *options, *flags]


def make_job(folder: Path, num_pages: int) -> Job:
    """A job of PDFs with one, two, three, … pages."""
    documents = folder / "documents"
    documents.mkdir()
    left = num_pages
    while left:
        count = min(left, len(os.listdir(documents)) + 1)
        draw_pdf(documents / f"{left:03}.pdf", *(f"Page {number}, with {left} to come" for number in range(count)))
        left -= count
    job = Job(make_quick_model(folder / "model"), documents, [])
    job.run(folder / "whole.parquet")
    job.rows.extend(read_rows(folder / "whole.parquet"))
    assert len(job.rows) == num_pages
    return job


@contextmanager
def started(job: Job, out: str | Path, *flags: str | Path, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """The command at work; it is killed if it is still running at the end of the block. before: see `command`."""
    with _at_work(command(*job.arguments(out, *flags), before=before)) as process:
        yield process


@contextmanager
def started_as_users_do(job: Job, out: Path, *flags: str | Path) -> Iterator[subprocess.Popen[str]]:
    """As `started`, but with workers and engines that are started anew."""
    with _at_work([sys.executable, "-P", "-m", "batchocr", "run", *job.arguments(out, *flags)]) as process:
        yield process


@contextmanager
def _at_work(arguments: Sequence[str | Path]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@dataclass(frozen=True)
class Killed:
    """A run after SIGKILL."""

    out: Path
    num_rows: int
    """Complete lines of its journal."""
    workers: list[psutil.Process]
    """Those it had."""
    folder: Path
    """Where it put its temporary files."""
    shared_memory_before: set[str]


def kill_a_run(
    start: Callable[[Job, Path], AbstractContextManager[subprocess.Popen[str]]], job: Job, folder: Path
) -> Killed:
    """Start the command with `start`, and kill it when three rows are there."""
    (folder / "tmp").mkdir()
    shared_memory = set(os.listdir("/dev/shm"))
    out = folder / "table.parquet"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TMPDIR", str(folder / "tmp"))
        with start(job, out) as process:
            wait_for_rows(process, out, 3)
            workers = workers_of(psutil.Process(process.pid))
            process.send_signal(signal.SIGKILL)
            process.wait()
    return Killed(out, num_rows(out), workers, folder / "tmp", shared_memory)


def wait_for_rows(process: subprocess.Popen[str], out: Path, count: int) -> None:
    """Return once the journal holds this many rows, with the run still going."""
    eventually(lambda: process.poll() is not None or num_rows(out) >= count)
    assert process.poll() is None
