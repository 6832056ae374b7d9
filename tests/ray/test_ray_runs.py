"""Runs on a cluster of one machine: the table is that of a plain run, whatever becomes of actors and of the driver."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

import batchocr.ray
from batchocr.data import PageResult
from batchocr.errors import NoInputError, OutputError, OutputMismatchError, UsageError
from batchocr.ray.cluster import connected
from tests.support.deadly_reader import DeadlyReader
from tests.support.detectors import make_detector
from tests.support.family_oracles import ORACLES
from tests.support.running import draw_pdf, read_rows, run_command, texts

pytest.importorskip("ray", reason="needs Ray: pip install '.[ray]'")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_folder")]
DEADLINE_S = 100.0


@pytest.fixture(scope="module")
def _connected(ray_folder: None) -> Iterator[None]:
    """This process is connected to a cluster of its own."""
    with connected(None):
        yield


def command(place: Path, out: str, *options: str) -> list[str]:
    program = [sys.executable, "-m", "batchocr", "ray", str(place / "in"), "--out", str(place / out)]
    return [*program, "--model", str(place / "model"), "--pages-per-task", "4", "--actors", "1", *options]


def rows_of(place: Path, out: str) -> list[PageResult]:
    return list(batchocr.open_table(place / out).rows())


@pytest.mark.long
def test_a_driver_that_is_killed_and_an_actor_that_is_killed_leave_the_table_of_a_plain_run(place: Path) -> None:
    out = place / "out"
    driver = subprocess.Popen(command(place, "out"), stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: items_in(out))
    finally:
        driver.kill()
        driver.wait()
    before = items_in(out)
    assert 1 <= len(before) < 4
    assert texts(batchocr.open_table(out, partial=True).rows())
    again = subprocess.Popen(
        command(place, "out", "--no-retry-failed"), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for(lambda: actors_below(again.pid))
    actors_below(again.pid)[0].kill()
    _, said = again.communicate(timeout=DEADLINE_S)
    assert again.returncode == 3, said
    assert "an actor was lost" in said
    assert "Traceback" not in said
    assert not items_in(out)
    assert texts(rows_of(place, "out")) == texts(read_rows(place / "plain.parquet"))
    assert duckdb.sql(f"SELECT count(*) FROM '{out}/*.parquet'").fetchall() == [(14,)]
    report = json.loads((out / ".batchocr" / "report.json").read_text())
    assert report["items"]["already_done"] >= len(before)
    assert report["actors_lost"] == 1
    assert report["items"]["failed"] == 1
    assert report["exit_code"] == 3
    assert (report["table"], report["rows"], next(iter(report))) == (f"{out}/", 14, "pages_per_second")


@pytest.mark.long
@pytest.mark.parametrize("family", ORACLES)
def test_a_family_with_a_detector_leaves_the_table_of_a_plain_run(family: str, tmp_path: Path) -> None:
    model, detector = ORACLES[family].make(tmp_path / "model", None), make_detector(tmp_path / "detector", "V3")
    (tmp_path / "in").mkdir()
    for number in range(3):
        draw_pdf(tmp_path / "in" / f"{number}.pdf", f"Dear reader {number}", "Yours")
    options = (f"--layout={detector}", "--dpi=72", "--max-new-tokens=12", "--max-degraded-rate=1")
    plain = run_command(tmp_path / "in", "--out", tmp_path / "plain.parquet", "--model", model, *options)
    assert plain.returncode == 0, plain.stderr
    done = subprocess.run(command(tmp_path, "out", *options), capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert texts(rows_of(tmp_path, "out")) == texts(read_rows(tmp_path / "plain.parquet"))


@pytest.mark.long
@pytest.mark.parametrize("call", ["load", "read"])
def test_a_run_whose_own_ray_has_died_ends_within_two_minutes_and_says_what_to_do(
    place: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_health_check_period_ms", "100")  # Ray notices before its actor has read everything
    running = subprocess.Popen(command(place, f"lost-{call}"), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: actors_below(running.pid, call))
    [raylet] = [child for child in psutil.Process(running.pid).children() if child.name() == "raylet"]
    raylet.kill()
    _, said = running.communicate(timeout=120)
    assert running.returncode == 75, said
    assert "the Ray that was started here has ended, as when memory runs out; run the same command again" in said
    assert f"{platform.node()} (dead)" in said


def actors_below(pid: int, call: str = "read") -> list[psutil.Process]:
    """The processes of actors that have begun to load or read, below a driver."""
    try:
        children = psutil.Process(pid).children(recursive=True)
        return [process for process in children if process.cmdline()[:1] == [f"ray::Reader.{call}"]]
    except psutil.Error:
        return []


def items_in(out: Path) -> list[str]:
    """What actors have read, and nobody has taken into the table."""
    return sorted(path.name for path in (out / ".batchocr" / "new").glob("*-item-*.new"))


def wait_for(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < deadline, "it has not happened"
        time.sleep(0.02)


def run(place: Path, out: str, **options: Any) -> batchocr.ray.ClusterReport:
    given = {"model": place / "model", "pages_per_task": 2, "actors": 1} | options
    return batchocr.ray.run([place / "in"], out=place / out, **given)


@pytest.mark.long
@pytest.mark.usefixtures("_connected")
def test_an_item_that_takes_its_actors_down_becomes_rows_that_say_so_and_is_tried_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("batchocr.ray.driver.Reader", DeadlyReader)
        report = run(place, "deadly")
    plain = read_rows(place / "plain.parquet")
    crashed = {(row.source, row.page_index): row for row in rows_of(place, "deadly") if row.error_kind == "crashed"}
    assert list(crashed) == [("letter-1.pdf", None)]
    assert [row.attempts for row in crashed.values()] == [3]
    assert (report.items.ok, report.items.failed, report.actors_lost) == (len(plain) - 3, 2, 6)
    assert report.items_given_up == 1
    assert [row.source for row in rows_of(place, "deadly")] == list(map(attrgetter("source"), plain[:-3] + plain[-2:]))
    assert run(place, "deadly", retry_failed=False).nothing_to_do
    assert run(place, "deadly").items.failed == 1
    assert texts(rows_of(place, "deadly")) == texts(plain)
    with pytest.raises(OutputMismatchError, match="dpi 200 there, 100 here"):
        run(place, "deadly", dpi=100)


@pytest.mark.long
@pytest.mark.usefixtures("_connected")
def test_the_folder_follows_its_input(place: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "model").symlink_to(place / "model")
    draw_pdf(tmp_path / "in" / "a.pdf", "one", "two", "three")
    draw_pdf(tmp_path / "in" / "b.pdf", "four")
    draw_pdf(tmp_path / "in" / "c.pdf", "five", "six")
    run(tmp_path, "out")
    [first] = (tmp_path / "out").glob("*.parquet")
    draw_pdf(tmp_path / "in" / "c.pdf", "seven", "eight", "nine")
    draw_pdf(tmp_path / "in" / "d.pdf", "ten")
    report = run(tmp_path, "out")
    assert (report.items.already_done, report.pages_read) == (4, 4)
    assert [*(tmp_path / "out").glob("*.parquet")] == [first]
    assert report.newest is not None and report.newest.ok == 4
    found = duckdb.sql(f"SELECT source, count(*) FROM '{tmp_path}/out/*.parquet' GROUP BY 1 ORDER BY 1").fetchall()
    assert found == [("a.pdf", 3), ("b.pdf", 1), ("c.pdf", 3), ("d.pdf", 1)]


@pytest.mark.long
@pytest.mark.usefixtures("_connected")
@pytest.mark.parametrize("num_pages", [3, 9])
def test_a_document_that_is_replaced_between_two_of_its_items_is_read_again(
    place: Path, tmp_path: Path, num_pages: int
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "model").symlink_to(place / "model")
    book = draw_pdf(tmp_path / "in" / "book.pdf", *(f"old {page}" for page in range(7)))
    newer = draw_pdf(tmp_path / "newer.pdf", *(f"new {page}" for page in range(num_pages)))
    report = run(
        tmp_path, "out", progress=lambda state: state.read >= 2 and newer.exists() and newer.replace(book) and None
    )
    assert (report.exit_code, report.items.ok, report.items.already_done) == (0, num_pages, 0)
    batchocr.run(tmp_path / "in", out=tmp_path / "plain.parquet", model=tmp_path / "model")
    assert texts(rows_of(tmp_path, "out")) == texts(read_rows(tmp_path / "plain.parquet"))


@pytest.mark.long
@pytest.mark.usefixtures("_connected")
def test_what_was_read_and_is_lost_before_the_table_is_made_is_not_left_out_of_it(place: Path) -> None:
    items = place / "taken" / ".batchocr" / "new"
    with pytest.raises(OutputError, match="cannot be read any more"):
        run(place, "taken", progress=lambda state: state.read >= 2 and [*map(Path.unlink, items.glob("*-item-*.new"))])
    run(place, "taken", retry_failed=False)
    assert texts(rows_of(place, "taken")) == texts(read_rows(place / "plain.parquet"))


@pytest.mark.long
@pytest.mark.usefixtures("_connected")
def test_a_cluster_and_a_machine_continue_what_the_other_has_made(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "in", tmp_path / "in")
    (tmp_path / "model").symlink_to(place / "model")
    options: dict[str, Any] = {"max_page_error_rate": 1, "rows_per_part": 8}
    run(tmp_path, "out", **options)
    draw_pdf(tmp_path / "in" / "new.pdf", "new")
    night = batchocr.run(tmp_path / "in", out=f"{tmp_path}/out/", model=tmp_path / "model", **options)
    assert (night.pages_read, night.items.already_done) == (1, 14)
    for number in range(50):
        draw_pdf(tmp_path / "in" / f"more-{number:02}.pdf", f"more {number}")
    report = run(tmp_path, "out", **options)
    assert (report.pages_read, report.items.already_done, report.items.found) == (50, 15, 65)
    batchocr.run(tmp_path / "in", out=f"{tmp_path}/anew/", model=tmp_path / "model", **options)
    rows = [texts(sorted(rows_of(tmp_path, out), key=attrgetter("source", "page_index"))) for out in ("out", "anew")]
    assert rows[0] == rows[1]
    verify = [
        sys.executable,
        "-m",
        "batchocr",
        "verify",
        tmp_path / "out",
        tmp_path / "in",
        "--max-page-error-rate",
        "1",
    ]
    done = subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout
    assert "65 rows expected" in done.stdout


@pytest.mark.long
@pytest.mark.usefixtures("_connected")
def test_what_is_in_an_archive_is_read_on_a_cluster(place: Path, tmp_path: Path) -> None:
    plain = read_rows(place / "plain.parquet")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for source in dict.fromkeys(row.source for row in plain):
            archive.write(place / "in" / source, source)
    options = {"out": tmp_path / "out", "model": place / "model", "pages_per_task": 4, "actors": 1}
    batchocr.ray.run(tmp_path / "x.zip", **options)
    expected = [replace(row, source=f"{tmp_path}/x.zip/{row.source}") for row in texts(plain)]
    assert texts(rows_of(tmp_path, "out")) == expected
    assert batchocr.ray.run(tmp_path / "x.zip", **options).nothing_to_do


@pytest.mark.long
@pytest.mark.usefixtures("_connected")
def test_a_run_that_is_stopped_keeps_what_is_there_and_continues(place: Path) -> None:
    stop = batchocr.StopSwitch()
    report = run(place, "stopped", stop=stop, progress=lambda state: state.read >= 2 and stop.request())
    assert (report.exit_reason, report.exit_code) == ("stopped", 75)
    assert 0 < report.items.ok < 13
    assert report.documents_not_opened > 0
    assert run(place, "stopped", overwrite=False).items.already_done == report.items.ok + report.items.failed
    assert texts(rows_of(place, "stopped")) == texts(read_rows(place / "plain.parquet"))


@pytest.mark.long
@pytest.mark.usefixtures("_connected")
def test_a_shard_of_the_documents_is_that_of_a_plain_run(place: Path) -> None:
    plain = {row.source for row in read_rows(place / "plain.parquet")}
    shards = []
    for index in (1, 2):
        run(place, f"shard-{index}", shard=f"{index}/2")
        shards.append({row.source for row in rows_of(place, f"shard-{index}")})
    assert shards[0] | shards[1] == plain
    assert not shards[0] & shards[1]
    with pytest.raises(OutputMismatchError, match="is of --shard 1/2"):
        run(place, "shard-1", shard="2/2")


@pytest.mark.long
def test_a_signal_is_handled_as_before_once_a_cluster_has_been_left() -> None:
    script = """
import os, signal
from batchocr.ray.cluster import connected
signal.signal(signal.SIGTERM, lambda *_: print("it came"))
with connected(None):
    pass
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (0, "it came\n")


@pytest.mark.long
@pytest.mark.usefixtures("_connected")
def test_a_file_that_was_only_touched_is_not_read_again(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(place, "touched", retry_failed=False)
    assert sum("broken.pdf failed (damaged)" in message for message in caplog.messages) == 1
    (place / "in" / "book.pdf").touch()
    assert run(place, "touched", retry_failed=False).pages_read == 0
    assert texts(rows_of(place, "touched")) == texts(read_rows(place / "plain.parquet"))


@pytest.mark.long
def test_what_cannot_be_read_on_a_cluster_is_refused(place: Path) -> None:
    with pytest.raises(UsageError, match="--limit is of a run on one machine"):
        run(place, "refused", limit=2)
    with pytest.raises(UsageError, match="name a folder"):
        run(place, "refused.parquet")
    with pytest.raises(UsageError, match="in memory"):
        batchocr.ray.run([("a.pdf", b"%PDF")], out=place / "refused")
    with pytest.raises(NoInputError):
        batchocr.ray.run([place / "in" / "book.pdf"], out=place / "refused", model=place / "model", pages="90-99")
    with pytest.raises(UsageError, match="--pages-per-task 0"):
        run(place, "refused", pages_per_task=0)
    asked = command(place, "refused", "--address", "127.0.0.1:1")  # this process may be connected already
    done = subprocess.run(asked, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, "no connection to a Ray cluster at 127.0.0.1:1" in done.stderr) == (1, True)
