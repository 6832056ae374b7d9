"""Runs on machines that come and go: whatever is lost, the table is that of a run that was left alone."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import batchocr
from tests.support.jobs import FULL
from tests.support.ray_cluster import Machine, RayCluster, ended, running_cluster
from tests.support.running import draw_pdf, make_quick_model

pytest.importorskip("ray", reason="needs Ray: pip install '.[ray]'")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not FULL, reason="takes minutes: BATCHOCR_FULL=1")]

PAGES = 40
DEADLINE_S = 300.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A model, and a book, whose pages are an item each."""
    make_quick_model(tmp_path / "model")
    (tmp_path / "in").mkdir()
    draw_pdf(tmp_path / "in" / "book.pdf", *(f"Page {number}" for number in range(PAGES)))
    return tmp_path


@pytest.fixture
def cluster() -> Iterator[RayCluster]:
    short = tempfile.TemporaryDirectory(prefix="r-", dir="/tmp", ignore_cleanup_errors=True)
    with short as folder, running_cluster(Path(folder)) as cluster:
        yield cluster


def start(place: Path, cluster: RayCluster, *, actors: int, pages_per_task: int = 2) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "batchocr", "ray", str(place / "in"), "--out", str(place / "out")]
    program += ["--model", str(place / "model"), "--address", cluster.address, "--workers", "1"]
    program += ["--actors", str(actors), "--pages-per-task", str(pages_per_task)]
    return subprocess.Popen(program, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.05)


def require_whole(place: Path, running: subprocess.Popen[str]) -> dict[str, str]:
    """Wait for the end of a run; returns what became of each machine that it did without."""
    code, said = ended(running, DEADLINE_S)
    assert code == 0, said
    rows = [(row.page_index, row.status) for row in batchocr.open_table(place / "out").rows()]
    assert rows == [(page, "ok") for page in range(PAGES)]
    report = json.loads((place / "out" / ".batchocr" / "report.json").read_text())
    return {each["name"]: each["fate"] for each in report["machines"]}


def test_a_machine_with_three_of_four_actors_is_lost(place: Path, cluster: RayCluster) -> None:
    cluster.add("m1")
    [machine] = cluster.add("m2", actors=3)
    running = start(place, cluster, actors=4)
    wait_for(lambda: machine.processes("read"))
    machine.cut_off()
    require_whole(place, running)


def test_two_machines_are_lost_with_the_same_item_within_seconds(place: Path, cluster: RayCluster) -> None:
    left = cluster.add("m1", "m2", "m3")
    running = start(place, cluster, actors=3, pages_per_task=1000)
    for _ in range(2):
        wait_for(lambda: reading(left))
        [machine] = reading(left)
        machine.cut_off()
        left.remove(machine)
    require_whole(place, running)


def reading(machines: list[Machine]) -> list[Machine]:
    return [machine for machine in machines if machine.processes("read")]


def test_a_machine_that_cannot_load_the_model_is_left_out(place: Path, cluster: RayCluster) -> None:
    cluster.add("m1")
    cluster.add("m2", before=f"mount -t tmpfs none {place / 'model'}")
    assert require_whole(place, start(place, cluster, actors=2)) == {"m2": "left out"}


def test_a_machine_whose_actors_die_of_what_others_read_is_left_out(place: Path, cluster: RayCluster) -> None:
    cluster.add("m1")
    [machine] = cluster.add("m2")
    with _killing(machine):
        fates = require_whole(place, start(place, cluster, actors=2))
    assert fates in ({"m2": "left out"}, {})  # Ray may take longer than the run to say that it is alive


@contextmanager
def _killing(machine: Machine) -> Iterator[None]:
    """Inside, actors there are killed as soon as they read."""
    is_over = threading.Event()

    def kill() -> None:
        while not is_over.wait(0.02):
            for process in machine.processes("read"):
                process.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
