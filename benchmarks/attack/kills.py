"""Runs whose processes are killed at random moments until the table is there: it equals that of an undisturbed run."""

from __future__ import annotations

import random
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.attack.tally import Tally

NUM_PAGES = 24
_MOST_FAULTS = 6
"""In one job: its last run is left alone."""
_DEADLINE_S = 180.0
_LATEST_S = 3.0
"""After the first worker is there, or after the last fault."""
_TO_MAIN = (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT)
_TO_WORKERS = (signal.SIGKILL, signal.SIGSEGV)
_EXIT_CODES = (0, 75, -signal.SIGKILL, -signal.SIGABRT, -signal.SIGTERM)
"""Finished, stopped, and killed by us: SIGTERM before the run has begun is not caught yet."""


def attack(dice: random.Random, count: int, tally: Tally, folder: Path | None) -> None:
    """count: faults in all. folder: unused."""
    from tests.support.jobs import make_job, started
    from tests.support.running import eventually, read_rows, texts, workers_of

    def alive(run: subprocess.Popen[str]) -> list[psutil.Process]:
        """Its workers; none if one of them is just being replaced."""
        try:
            return workers_of(psutil.Process(run.pid))
        except psutil.Error:
            return []

    def run_once(out: Path, num_faults: int) -> int:
        """Start or continue the run, and disturb it so often at most. Returns how often."""
        num_done = 0
        with started(job, out) as process:
            eventually(lambda: process.poll() is not None or alive(process))
            while num_done < num_faults and not _ends_within(process, dice.uniform(0, _LATEST_S)):
                workers = alive(process) if dice.random() < 0.5 else []
                target, number = (
                    (dice.choice(workers), dice.choice(_TO_WORKERS)) if workers else (process, dice.choice(_TO_MAIN))
                )
                tally.add(f"{'worker' if workers else 'run'} ended by {number.name}")
                with suppress(psutil.NoSuchProcess):
                    target.send_signal(number)
                num_done += 1
                if not workers:
                    break
            said = process.communicate(timeout=_DEADLINE_S)[1]
            if process.returncode not in _EXIT_CODES:
                tally.fault(f"exit code {process.returncode}", said.encode(), ".txt")
        return num_done

    with tempfile.TemporaryDirectory() as temporary, make_job(Path(temporary), NUM_PAGES) as job:
        number = 0
        while count > 0:
            number += 1
            out = Path(temporary) / f"{number}.parquet"
            num_faults = min(count, _MOST_FAULTS)
            count -= num_faults
            while num_faults > 0 and not out.exists():
                num_faults -= run_once(out, num_faults)
            count += num_faults  # the run had ended before
            if not out.exists():
                run_once(out, 0)
            if out.exists() and texts(read_rows(out)) == texts(job.rows):
                tally.add("tables equal to an undisturbed run's")
            else:
                tally.fault("another table than an undisturbed run's", out.read_bytes() if out.exists() else b"")


def _ends_within(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
