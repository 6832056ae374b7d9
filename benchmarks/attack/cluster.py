"""Runs on a cluster whose actors, machines and driver are killed at random moments, whose machines come back, and whose
store now and then does not answer for half a minute: the table, in a folder or in the store, is that of a run on one
machine, to the order of its rows. A run on one machine may continue it, too.

Needs Ray, moto, and machines with host names of their own (UTS namespaces).
"""

from __future__ import annotations

import os
import random
import secrets
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

from batchocr.storage.uris import is_uri
from benchmarks.attack.tally import Tally

if TYPE_CHECKING:
    from batchocr.data import PageResult
    from tests.support.object_store import ObjectStore
    from tests.support.ray_cluster import RayCluster

_BOOK_PAGES = 120
_LETTERS = 12
_MOST_LOSSES = 5
"""In one job: its last run is left alone."""
_MOST_ACTORS = 2
"""Actors that are killed in a run: if more are, a document may be taken for what kills them."""
_LATEST_S = 8.0
"""After the driver has begun, or after the last loss."""
_DEADLINE_S = 400.0
_AWAY_S = 30.0
"""How long the store does not answer."""
_ON_ONE_MACHINE = 0.2
"""How many of the commands are `batchocr run`."""
_MACHINES = {"m1": 1, "m2": 2, "m3": 1}
"""How many actors each has room for."""


def attack(dice: random.Random, count: int, tally: Tally, folder: Path | None) -> None:
    """count: losses in all. folder: unused."""
    from tests.support.object_store import running_store, used
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
        with running_store() as store, used(store), running_cluster(Path(short)) as cluster:
            store.put("pages", {})
            while count > 0:
                number += 1
                left = min(count, _MOST_LOSSES)
                count -= left
                out = dice.choice((f"{place}/out-{number}/", f"s3://pages/{secrets.token_hex(8)}/"))
                _job(dice, left, tally, cluster, store, place, out, expected)


def _job(
    dice: random.Random,
    losses: int,
    tally: Tally,
    cluster: RayCluster,
    store: ObjectStore,
    place: Path,
    out: str,
    expected: list[PageResult],
) -> None:
    """Run until the table is there, with so many losses at most, and compare it."""
    import batchocr
    from tests.support.running import texts

    while True:
        for name, actors in _MACHINES.items():
            if not any(machine.name == name and machine.is_there for machine in cluster.machines):
                cluster.add(name, actors=actors)
        code, said, losses = _run(dice, losses, tally, cluster, store, place, out)
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
    dice: random.Random, losses: int, tally: Tally, cluster: RayCluster, store: ObjectStore, place: Path, out: str
) -> tuple[int, str, int]:
    """Run the command, with so many losses at most; returns how it ended, what it said, and how many are left."""
    how = "run" if dice.random() < _ON_ONE_MACHINE else "ray"
    command = [sys.executable, "-m", "batchocr", how, place / "in", "--out", out, "--model", place / "model"]
    command += ["--workers", "1"]
    if how == "ray":
        command += ["--address", cluster.address, "--actors", "3", "--pages-per-task", "3"]
    with tempfile.TemporaryFile("w+") as log:
        running = subprocess.Popen(command, stderr=log, start_new_session=True)
        deadline = time.monotonic() + _DEADLINE_S
        next_s, actors = time.monotonic() + dice.uniform(2, _LATEST_S), _MOST_ACTORS
        while running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
            if losses and time.monotonic() > next_s:
                what = _lose(dice, tally, cluster, store if is_uri(out) else None, running, spare_actors=not actors)
                losses, actors = losses - bool(what), actors - (what == "actor")
                next_s = time.monotonic() + dice.uniform(0, _LATEST_S)
        code = running.poll()
        if code is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            code = -999
        log.seek(0)
        return code, log.read(), losses


def _lose(
    dice: random.Random,
    tally: Tally,
    cluster: RayCluster,
    store: ObjectStore | None,
    running: subprocess.Popen[bytes],
    *,
    spare_actors: bool,
) -> str:
    """Kill an actor, a machine, or the driver, or have the store not answer; returns what it was, if it was there."""
    what = dice.choice(("actor", "actor", "machine", "machine", "driver", *(["store"] * 2 if store else [])))
    there = [machine for machine in cluster.machines[1:] if machine.is_there]
    if what == "store" and store is not None:
        until = time.monotonic() + _AWAY_S
        store.fault = lambda environ, start: time.sleep(max(0.0, until - time.monotonic()))
    elif what == "driver":
        running.kill()
    elif what == "machine" and len(there) > 1:
        machine = dice.choice(there)
        print(f"{time.strftime('%X')} {machine.name} is cut off", flush=True)
        machine.cut_off()
    else:
        what = "actor"
        actors = [process for machine in there for process in machine.processes("read")]
        if not actors or spare_actors:
            return ""
        with suppress(psutil.NoSuchProcess):
            dice.choice(actors).kill()
    tally.add(f"{what} killed" if what != "store" else "store away")
    return what
