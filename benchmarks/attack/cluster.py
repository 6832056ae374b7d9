"""Runs on a cluster whose actors, machines and driver are killed at random moments, and whose machines come back: the
table is that of a run on one machine, to the order of its rows.

Needs Ray, and machines with host names of their own (UTS namespaces).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.attack.tally import Tally

if TYPE_CHECKING:
    from batchocr.data import PageResult
    from tests.support.ray_cluster import RayCluster

_BOOK_PAGES = 120
_LETTERS = 12
_MOST_LOSSES = 5
"""In one job: its last run is left alone."""
_LATEST_S = 8.0
"""After the driver has begun, or after the last loss."""
_DEADLINE_S = 400.0
_MACHINES = {"m1": 1, "m2": 2, "m3": 1}
"""How many actors each has room for."""


def attack(dice: random.Random, count: int, tally: Tally, folder: Path | None) -> None:
    """count: losses in all. folder: unused."""
    from tests.support.ray_cluster import running_cluster
    from tests.support.running import draw_pdf, make_quick_model, read_rows, run_command, texts

    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as short:
        place = Path(temporary)
        make_quick_model(place / "model")
        (place / "in").mkdir()
        draw_pdf(place / "in" / "book.pdf", *(f"Page {number}" for number in range(_BOOK_PAGES)))
        for number in range(_LETTERS):
            draw_pdf(place / "in" / f"letter-{number}.pdf", f"Dear reader {number}", "Yours")
        done = run_command(place / "in", "--out", place / "plain.parquet", "--model", place / "model")
        assert done.returncode == 0, done.stderr
        expected = _comparable(texts(read_rows(place / "plain.parquet")))
        number = 0
        with running_cluster(Path(short)) as cluster:
            while count > 0:
                number += 1
                left = min(count, _MOST_LOSSES)
                count -= left
                _job(dice, left, tally, cluster, place, place / f"out-{number}", expected)


def _job(
    dice: random.Random,
    losses: int,
    tally: Tally,
    cluster: RayCluster,
    place: Path,
    out: Path,
    expected: list[PageResult],
) -> None:
    """Run until the table is there, with so many losses at most, and compare it."""
    import batchocr
    from tests.support.running import texts

    while True:
        for name, actors in _MACHINES.items():
            if not any(machine.name == name and machine.is_there for machine in cluster.machines):
                cluster.add(name, actors=actors)
        code, said, losses = _run(dice, losses, tally, cluster, place, out)
        if code in (0, 75, -signal.SIGKILL):
            if code == 0:
                break
            continue
        tally.fault(f"exit code {code}", said.encode(), ".txt")
        print(f"exit code {code}: {said[-3000:]}", flush=True)
        return
    rows = _comparable(texts(batchocr.open_table(out).rows()))
    if rows == expected:
        tally.add("tables equal to an undisturbed run's")
        return
    differing = [(a.source, a.page_index, a.status, a.error_message) for a in rows if a not in expected]
    tally.fault("another table", f"{len(rows)} rows, {differing}\n{said}".encode(), ".txt")
    print(f"another table: {len(rows)} rows of {len(expected)}, {differing[:9]}\n{said[-3000:]}", flush=True)


def _comparable(rows: list[PageResult]) -> list[PageResult]:
    return [replace(row, attempts=1) for row in rows]


def _run(
    dice: random.Random, losses: int, tally: Tally, cluster: RayCluster, place: Path, out: Path
) -> tuple[int, str, int]:
    """Run the command, with so many losses at most; returns how it ended, what it said, and how many are left."""
    command = [sys.executable, "-m", "batchocr", "ray", place / "in", "--out", out, "--model", place / "model"]
    command += ["--address", cluster.address, "--workers", "1", "--actors", "3", "--pages-per-task", "3"]
    with tempfile.TemporaryFile("w+") as log:
        running = subprocess.Popen(command, stderr=log, start_new_session=True)
        deadline = time.monotonic() + _DEADLINE_S
        next_s = time.monotonic() + dice.uniform(2, _LATEST_S)
        while running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            if losses and time.monotonic() > next_s:
                losses -= _lose(dice, tally, cluster, running)
                next_s = time.monotonic() + dice.uniform(0, _LATEST_S)
        code = running.poll()
        if code is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            code = -999
        log.seek(0)
        return code, log.read(), losses


def _lose(dice: random.Random, tally: Tally, cluster: RayCluster, running: subprocess.Popen[bytes]) -> bool:
    """Kill an actor, a machine, or the driver; returns whether there was one."""
    what = dice.choice(("actor", "actor", "machine", "machine", "driver"))
    there = [machine for machine in cluster.machines[1:] if machine.is_there]
    if what == "driver":
        running.kill()
    elif what == "machine" and len(there) > 1:
        machine = dice.choice(there)
        print(f"{time.strftime('%X')} {machine.name} is cut off", flush=True)
        machine.cut_off()
    else:
        what = "actor"
        actors = [process for machine in there for process in machine.processes("read")]
        if not actors:
            return False
        with suppress(psutil.NoSuchProcess):
            dice.choice(actors).kill()
    tally.add(f"{what} killed")
    return True
