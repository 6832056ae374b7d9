"""One run of `routing.py`, in a process that loads no torch, as that of a run. Prints its figures as JSON.

`python -m benchmarks.speed.routed_run FOLDER MODEL ENGINES WORKERS PAGES_IN_FLIGHT WARM_UP`: the folder holds
`documents` and `answers.json`; the count begins when WARM_UP pages are read.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from batchocr.api import find_inputs
from batchocr.config import Config
from batchocr.job.output_job import read_into_table
from batchocr.job.progress import RunProgress
from batchocr.job.session import Session
from batchocr.job.stop import StopSwitch
from benchmarks.foreseen import engine_command


class Stopwatch:
    """A Progress that takes the time and this process's CPU time from the end of the warm-up to the last page."""

    def __init__(self, num_warm_up: int) -> None:
        self._num_warm_up = num_warm_up
        self._began: tuple[float, ...] = ()
        self._ended: tuple[float, ...] = ()

    @property
    def figures(self) -> dict[str, float]:
        passed = (after - before for after, before in zip(self._ended, self._began, strict=True))
        return dict(zip(("pages", "seconds", "user_s", "system_s"), passed, strict=True))

    def show(self, state: RunProgress) -> None:
        # Asked for as rarely as can be: where system calls are dear, this is one of the dearest.
        if not self._began and state.read >= self._num_warm_up:
            self._began = self._now(state)
        elif self._began and not self._ended and state.all_planned and state.read == state.planned:
            self._ended = self._now(state)

    def _now(self, state: RunProgress) -> tuple[float, ...]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return state.read, time.perf_counter(), usage.ru_utime, usage.ru_stime

    def close(self) -> None:
        pass


def main(folder: Path, model: str, engines: int, workers: int, pages_in_flight: int, num_warm_up: int) -> None:
    devices = ",".join(["cpu"] * engines)
    config = Config(model=model, device=devices, workers=workers, pages_in_flight=pages_in_flight)
    stopwatch = Stopwatch(num_warm_up)
    # The documents are copies, all of which are to be read.
    session = Session(config, engine_command=engine_command("instant_engine", folder / "answers.json"), reads_all=True)
    try:
        found, out = find_inputs(config, str(folder / "documents")), folder / f"{engines}.parquet"
        report = read_into_table(
            session, config, found, out, StopSwitch(None), stopwatch, started_s=time.perf_counter()
        )
    finally:
        session.close()
    if not report.pages_read == report.items.ok == report.items.found:
        raise RuntimeError(f"not every page was read: {report.items}, {report.errors}")
    print(json.dumps(stopwatch.figures))


if __name__ == "__main__":
    folder, model, *numbers = sys.argv[1:]
    main(Path(folder), model, *map(int, numbers))
