"""Runs whose processes are killed at random moments until the table is there: it equals that of an undisturbed run.

`kills` are first runs. `nights` continue a finished table, a file or a folder, over one document that is new, one that
has changed, and one that is gone: half of them die at a random moment, half at a random call of those that give a file
its name or make it last, so between the table's rename and the end of the journal, too.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from batchocr.data import PageResult
from benchmarks.attack.tally import Tally

NUM_PAGES = 24
_NIGHT_PAGES = 15
_ROWS_PER_PART = 4
_TABLES = ("table.parquet", "table/")
_LAST_CALL = 12
_DIE = """
import os
def counted(call):
    def counting(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
        return call(*arguments, **options)
    return counting
left = {}
for name in ("replace", "unlink", "fsync", "fdatasync"):
    setattr(os, name, counted(getattr(os, name)))
"""
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


def nights(dice: random.Random, count: int, tally: Tally, folder: Path | None) -> None:
    """count: kills in all, as many for each kind of table, so perhaps one more. folder: unused."""
    from tests.support.jobs import make_job, started
    from tests.support.running import draw_pdf, read_rows, texts

    def rows_of(out: Path) -> list[PageResult]:
        return texts(sorted(read_rows(out), key=lambda row: (row.source, row.page_index or 0)))

    with tempfile.TemporaryDirectory() as temporary:
        job = make_job(Path(temporary), _NIGHT_PAGES)
        first = Path(temporary, "first")
        for name in _TABLES:
            first.mkdir(exist_ok=True)
            job.run(f"{first}/{name}", rows_per_part=_ROWS_PER_PART)
        gone, changed, *_ = sorted(job.documents.iterdir())
        gone.unlink()
        draw_pdf(changed, "one that has changed")
        draw_pdf(job.documents / "new.pdf", "a new one", "of two pages")
        began_s = time.monotonic()
        job.run(Path(temporary) / "anew.parquet")
        night_s = time.monotonic() - began_s
        expected = rows_of(Path(temporary) / "anew.parquet")
        left = dict.fromkeys(_TABLES, -(-count // len(_TABLES)))
        while name := max(left, key=lambda name: left[name]) if any(left.values()) else "":
            shutil.rmtree(Path(temporary) / "night", ignore_errors=True)
            shutil.copytree(first, Path(temporary) / "night")
            out, is_killed = f"{temporary}/night/{name}", True
            while is_killed:
                num_calls = dice.choice((0, dice.randint(1, _LAST_CALL))) if left[name] else 0
                before = _DIE.format(num_calls) if num_calls else ""
                with started(job, out, "--prune", f"--rows-per-part={_ROWS_PER_PART}", before=before) as process:
                    if left[name] and not num_calls and not _ends_within(process, dice.uniform(0, night_s)):
                        process.kill()
                    said = process.communicate(timeout=_DEADLINE_S)[1]
                is_killed = process.returncode == -signal.SIGKILL
                left[name] -= is_killed
                if is_killed:
                    tally.add(f"{name} killed {'at a call' if num_calls else 'at a moment'}")
                elif process.returncode not in (0, 3):
                    tally.fault(f"exit code {process.returncode}", said.encode(), ".txt")
            if rows_of(Path(out)) == expected:
                tally.add("tables equal to an undisturbed run's")
            else:
                tally.fault("another table than an undisturbed run's", said.encode(), ".txt")


def _ends_within(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
