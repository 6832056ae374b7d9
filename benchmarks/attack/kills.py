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
_LATEST_S = 5.0
"""After the first process is there, or after the last fault."""
_DEVICES = ("cpu", "cpu,cpu")
_SIGNALS = {
    "run": (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT),
    "worker": (signal.SIGKILL, signal.SIGSEGV),
    "engine": (signal.SIGKILL,),
}
"""An engine that crashes twice over the same request fails it; one that somebody kills does not."""
_EXIT_CODES = (0, 75, -signal.SIGKILL, -signal.SIGABRT, -signal.SIGTERM)
"""Finished, stopped, and killed by us: SIGTERM before the run has begun is not caught yet."""


def attack(dice: random.Random, count: int, tally: Tally, folder: Path | None) -> None:
    """count: faults in all. folder: unused."""
    from tests.support.jobs import make_job, started
    from tests.support.running import engines_of, eventually, is_alive, read_rows, texts, workers_of

    seen: set[psutil.Process] = set()
    finders = {"run": lambda run: [run], "worker": workers_of, "engine": engines_of}

    def alive(run: subprocess.Popen[str], kind: str) -> list[psutil.Process]:
        """Its processes of this kind; none if it has ended."""
        try:
            found = finders[kind](psutil.Process(run.pid))
        except psutil.Error:
            return []
        seen.update(found)
        return found

    def run_once(out: Path, num_faults: int) -> int:
        """Start or continue the run, and disturb it so often at most. Returns how often."""
        num_done = 0
        with started(job, out, "--device", dice.choice(_DEVICES)) as process:
            eventually(lambda: process.poll() is not None or alive(process, "engine"))
            while num_done < num_faults and not _ends_within(process, dice.uniform(0, _LATEST_S)):
                kind = dice.choice(list(_SIGNALS))
                if not (targets := alive(process, kind)):
                    continue
                number = dice.choice(_SIGNALS[kind])
                tally.add(f"{kind} ended by {number.name}")
                with suppress(psutil.NoSuchProcess):
                    dice.choice(targets).send_signal(number)
                num_done += 1
                if kind == "run":
                    break
            said = process.communicate(timeout=_DEADLINE_S)[1]
            if process.returncode not in _EXIT_CODES:
                tally.fault(f"exit code {process.returncode}", said.encode(), ".txt")
                num_done = num_faults  # it would go on like this
        try:
            eventually(lambda: not any(map(is_alive, seen)))
        except AssertionError:
            tally.fault("a process that outlived its run", said.encode(), ".txt")
        return num_done

    with tempfile.TemporaryDirectory() as temporary:
        job = make_job(Path(temporary), NUM_PAGES)
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
