"""`python -m benchmarks.routed_run …`: one run of `routing.py`, in a process that loads no torch, as that of a run.

Prints its figures as JSON.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import sys
import tempfile
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from batchocr.api import find_inputs
from batchocr.config import Config
from batchocr.job import reading_pass
from batchocr.job.output_job import read_into_table
from batchocr.job.progress import RunProgress
from batchocr.job.session import Session
from batchocr.job.stop import StopSwitch
from batchocr.processes.pool import WorkerPool
from benchmarks.foreseen import engine_command


class Stopwatch:
    """A Progress that notes the time and this process's CPU time when some pages have been read, and when all have.

    pages: how many were read in between.
    """

    def __init__(self, num_warm_up: int) -> None:
        """num_warm_up: how many are read before it begins."""
        self._num_warm_up = num_warm_up
        self._began: tuple[int, float, float, float] | None = None
        self.pages = 0
        self.seconds = self.user_s = self.system_s = 0.0

    def show(self, state: RunProgress) -> None:
        # Asked for as rarely as can be: where system calls are dear, this is one of the dearest.
        if self._began is None and state.read >= self._num_warm_up:
            self._began = self._now(state)
        elif self._began is not None and not self.pages and state.all_planned and state.read == state.planned:
            passed = [now - before for now, before in zip(self._now(state), self._began, strict=True)]
            self.pages, (self.seconds, self.user_s, self.system_s) = int(passed[0]), passed[1:]

    def _now(self, state: RunProgress) -> tuple[int, float, float, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return state.read, time.perf_counter(), usage.ru_utime, usage.ru_stime

    def close(self) -> None:
        pass


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--recording", type=Path, help="workers play this, instead of reading the documents")
    parser.add_argument("--engines", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--pages-in-flight", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True, help="how many pages are read before the count begins")
    parser.add_argument("--saving", choices=("none", "run", "cache"), required=True)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args(arguments)
    if given.recording:
        command = (sys.executable, "-m", "benchmarks.replaying_worker", str(given.recording))
        reading_pass.WorkerPool = partial(WorkerPool, command=command)
    caches = tempfile.TemporaryDirectory() if given.saving == "cache" else None
    config = Config(
        cache=caches.name if caches else None,
        model=given.model,
        device=",".join(["cpu"] * given.engines),
        workers=given.workers,
        pages_in_flight=given.pages_in_flight,
    )
    stopwatch, profile = Stopwatch(given.warm_up), cProfile.Profile()
    command = engine_command("instant_engine", given.answers)
    session = Session(config, engine_command=command, reads_all=given.saving == "none")
    try:
        with tempfile.TemporaryDirectory() as folder, profile if given.profile else nullcontext():
            found, out = find_inputs(config, given.documents), Path(folder) / "results.parquet"
            before_s = time.process_time()
            stop = StopSwitch(None)
            report = read_into_table(session, config, found, out, stop, stopwatch, started_s=time.perf_counter())
            whole_s = time.process_time() - before_s
    finally:
        session.close()
    if report.pages_read != report.items.found or report.saved.from_run or report.saved.from_cache:
        raise RuntimeError(f"some pages were the same: {report.saved}")
    if report.items.ok != report.items.found:
        raise RuntimeError(f"not every page was read: {report.items}, {report.errors}")
    if given.profile:
        statistics = pstats.Stats(profile, stream=sys.stderr)
        statistics.sort_stats("tottime").print_stats(40)
        statistics.sort_stats("cumulative").print_stats(60)
    figures = {
        "pages": stopwatch.pages,
        "seconds": stopwatch.seconds,
        "user_s": stopwatch.user_s,
        "system_s": stopwatch.system_s,
        "whole_ms": 1000 * whole_s / report.pages_read,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
