"""A run into a folder of parts: each night replaces the parts in which something changes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import batchocr
from batchocr.errors import OutputError, OutputMismatchError, UsageError
from batchocr.tables.earlier import metadata_of_rows
from batchocr.tables.files import OWN_FOLDER, journal_path, record_path, report_path
from batchocr.tables.opened import open_rows
from tests.support import stand_in
from tests.support.jobs import Job, started
from tests.support.running import draw_pdf, read_rows, run_command, texts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def usual(model: Path) -> dict[str, Any]:
    small = {"dpi": 72, "workers": 1, "pages_in_flight": 4, "rows_per_part": 4}
    return {"model": model, "max_degraded_rate": 1, **small}


@pytest.fixture(scope="module")
def first_day(tmp_path_factory: pytest.TempPathFactory, usual: dict[str, Any]) -> Path:
    """Documents of two pages each, three of one and one of five, and a folder of parts beside them."""
    folder = tmp_path_factory.mktemp("parts") / "archive"
    (folder / "in").mkdir(parents=True)
    for name in ("b", "d", "f", "h", "k"):
        draw_pdf(folder / "in" / f"{name}.pdf", f"{name} one", f"{name} two")
    draw_pdf(folder / "in" / "j.pdf", *(f"j {page}" for page in range(5)))
    batchocr.run(folder / "in", out=f"{folder}/table/", **usual)
    return folder.rename(folder.with_name("first day"))


@pytest.fixture
def archive(first_day: Path) -> Path:
    """The same in the place where they were read."""
    shutil.rmtree(first_day.parent / "archive", ignore_errors=True)
    return Path(shutil.copytree(first_day, first_day.parent / "archive"))


def in_parts(out: Path) -> list[list[str]]:
    """The documents of each part."""
    return [list(dict.fromkeys(pq.read_table(path)["source"].to_pylist())) for path in sorted(out.glob("*.parquet"))]


def state_of(out: Path) -> Mapping[str, tuple[bytes, int, int]]:
    """Content, inode and time of the parts and of their record."""
    files = [*out.glob("*.parquet"), record_path(out)]
    return {path.name: (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def anew(folder: Path, usual: dict[str, Any]) -> list[Any]:
    """The rows of a run into one file that has nothing to continue, by document and page."""
    batchocr.run(folder / "in", out=folder / "anew.parquet", overwrite=True, **usual)
    return texts(sorted(read_rows(folder / "anew.parquet"), key=lambda row: (row.source, row.page_index)))


def rows_in(out: Path) -> list[Any]:
    return texts(sorted(open_rows(out, ours=True).rows(), key=lambda row: (row.source, row.page_index)))


def test_the_first_night_fills_part_after_part_and_divides_no_document(archive: Path, usual: dict[str, Any]) -> None:
    out = archive / "table"
    assert in_parts(out) == [["b.pdf", "d.pdf"], ["f.pdf", "h.pdf"], ["j.pdf"], ["k.pdf"]]
    assert [path.name for path in out.iterdir() if path.suffix != ".parquet"] == [OWN_FOLDER]
    assert sorted(path.name for path in (out / OWN_FOLDER).iterdir()) == ["new", "report.json", "table.json"]
    assert rows_in(out) == anew(archive, usual)
    assert duckdb.sql(f"select count(*) from '{out}/*.parquet'").fetchall() == [(15,)]


def test_with_nothing_new_no_file_changes_but_the_report(archive: Path, usual: dict[str, Any]) -> None:
    before = state_of(archive / "table")
    report = batchocr.run(archive / "in", out=archive / "table", **usual)
    assert report.nothing_to_do and report.items.found == 15
    assert state_of(archive / "table") == before


def test_a_night_replaces_the_parts_that_change_and_fills_the_last_one(archive: Path, usual: dict[str, Any]) -> None:
    out = archive / "table"
    before = state_of(out)
    draw_pdf(archive / "in" / "a.pdf", "a one")
    draw_pdf(archive / "in" / "c.pdf", "c one", "c two")
    draw_pdf(archive / "in" / "d.pdf", "changed")
    (archive / "in" / "f.pdf").unlink()
    report = batchocr.run(archive / "in", out=out, prune=True, **usual)
    assert (report.pages_read, report.items.already_done, report.rows_gone) == (4, 11, 2)
    assert in_parts(out) == [["b.pdf", "d.pdf"], ["h.pdf"], ["j.pdf"], ["a.pdf", "k.pdf"], ["c.pdf"]]
    after = state_of(out)
    same = [name for name in before if before[name] == after[name]]
    assert same == [sorted(before)[2]]
    assert sorted(after)[:4] == sorted(before)[:4]
    assert rows_in(out) == anew(archive, usual)
    assert batchocr.run(archive / "in", out=out, **usual).nothing_to_do
    assert state_of(out) == after


def test_a_new_document_that_does_not_fit_into_the_last_part_begins_another(
    archive: Path, usual: dict[str, Any]
) -> None:
    before = state_of(archive / "table")
    draw_pdf(archive / "in" / "a.pdf", "a one", "a two", "a three")
    assert batchocr.run(archive / "in", out=archive / "table", **usual).pages_read == 3
    assert in_parts(archive / "table")[-2:] == [["k.pdf"], ["a.pdf"]]
    after = state_of(archive / "table")
    assert [name for name in before if before[name] != after[name]] == ["table.json"]


@pytest.mark.parametrize("num_replaced", [1, *(pytest.param(number, marks=pytest.mark.long) for number in (0, 2, 9))])
def test_a_kill_between_two_parts_costs_nothing(archive: Path, usual: dict[str, Any], num_replaced: int) -> None:
    out = archive / "table"
    draw_pdf(archive / "in" / "a.pdf", "a one")
    draw_pdf(archive / "in" / "d.pdf", "changed")
    draw_pdf(archive / "in" / "h.pdf", "worse")
    die = (
        "import os\nrename, done = os.rename, []\n"
        "def replace(old, new):\n"
        "    if str(new).endswith('.parquet'):\n"
        f"        if len(done) == {num_replaced}:\n            os.kill(os.getpid(), 9)\n"
        "        done.append(new)\n"
        "    rename(old, new)\n"
        "os.replace = replace\n"
        "import batchocr.tables.journal as journal\n"
        "journal.Journal.remove = lambda self: os.kill(os.getpid(), 9)"
    )
    with started(
        Job(usual["model"], archive / "in", []), out, "--workers", "1", "--rows-per-part", "4", before=die
    ) as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert journal_path(out).exists()
    report = batchocr.run(archive / "in", out=out, **usual)
    assert (report.pages_read, report.items.found) == (0, 14)
    assert not [path.name for path in out.iterdir() if path.suffix in (".journal", ".tmp")]
    assert rows_in(out) == anew(archive, usual)
    before = state_of(out)
    assert batchocr.run(archive / "in", out=out, **usual).nothing_to_do
    assert state_of(out) == before


@pytest.mark.long
def test_a_folder_becomes_a_table_and_a_table_a_folder(archive: Path, usual: dict[str, Any]) -> None:
    out, table = archive / "table", archive / "merged.parquet"
    assert run_command_of("merge", out, "--out", table)
    assert batchocr.run(archive / "in", out=table, **usual).nothing_to_do
    assert run_command_of("merge", table, "--out", f"{archive}/again/", "--rows-per-part", "2")
    assert in_parts(archive / "again") == [["b.pdf"], ["d.pdf"], ["f.pdf"], ["h.pdf"], ["j.pdf"], ["k.pdf"]]
    assert batchocr.run(archive / "in", out=archive / "again", **usual).nothing_to_do
    assert rows_in(archive / "again") == rows_in(out)


def run_command_of(*arguments: str | Path) -> bool:
    import subprocess

    from tests.support.running import command

    done = subprocess.run(command(*arguments[1:], name=str(arguments[0])), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return True


def test_what_is_in_the_way_is_refused_with_a_sentence(archive: Path, usual: dict[str, Any], tmp_path: Path) -> None:
    def refusal(out: Path) -> str:
        with pytest.raises(OutputMismatchError) as refused:
            batchocr.run(archive / "in", out=f"{out}/", **usual)
        return str(refused.value)

    assert "b.pdf, which is not of a run into this folder: name another folder" in refusal(archive / "in")
    (tmp_path / "shards").mkdir()
    shutil.copy(next((archive / "table").glob("*.parquet")), tmp_path / "shards" / "shard-1.parquet")
    assert "shard-1.parquet" in refusal(tmp_path / "shards")
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "run.json").write_text("{}")
    assert "run.json" in refusal(tmp_path / "cluster")
    with pytest.raises(UsageError, match=r"must end in \.parquet or \.jsonl, or in / for a folder of parts"):
        batchocr.run(archive / "in", out=tmp_path / "no folder yet", **usual)


def test_a_part_that_is_damaged_or_missing_is_noticed(archive: Path, usual: dict[str, Any]) -> None:
    out = archive / "table"
    second = sorted(out.glob("*.parquet"))[1]
    second.unlink()
    with pytest.raises(OutputError, match=f"{second.name} is not there any more: restore it, or delete it and "):
        batchocr.run(archive / "in", out=out, **usual)
    record_path(out).unlink()
    assert batchocr.run(archive / "in", out=out, **usual).pages_read == 4
    assert rows_in(out) == anew(archive, usual)


def test_overwrite_begins_the_folder_anew(archive: Path, usual: dict[str, Any]) -> None:
    for name in ("f", "h", "j", "k"):
        (archive / "in" / f"{name}.pdf").unlink()
    report = batchocr.run(archive / "in", out=archive / "table", overwrite=True, **usual)
    assert (report.pages_read, report.items.found) == (4, 4)
    assert in_parts(archive / "table") == [["b.pdf", "d.pdf"]]


@pytest.mark.long
def test_the_command_takes_a_folder(archive: Path, usual: dict[str, Any]) -> None:
    done = run_command(archive / "in", "--out", f"{archive}/other/", "--model", usual["model"], "--dpi", "72")
    assert done.returncode in (0, 3)
    assert len(list((archive / "other").glob("*.parquet"))) == 1


@pytest.mark.long
def test_a_file_that_was_touched_gets_its_new_time_when_any_part_is_written(
    archive: Path, usual: dict[str, Any]
) -> None:
    out = archive / "table"
    os.utime(archive / "in" / "b.pdf", ns=(1, 1))
    before = state_of(out)
    assert batchocr.run(archive / "in", out=out, **usual).nothing_to_do
    assert state_of(out) == before
    draw_pdf(archive / "in" / "k.pdf", "changed")
    assert batchocr.run(archive / "in", out=out, **usual).pages_read == 1
    assert {row.file_mtime_ns for row in open_rows(out).rows() if row.source == "b.pdf"} == {1}
    assert rows_in(out) == anew(archive, usual)


@pytest.mark.long
def test_a_run_that_failed_before_it_had_a_row_leaves_a_folder_that_can_be_used(
    archive: Path, usual: dict[str, Any]
) -> None:
    (archive / "failed").mkdir()
    shutil.copy(report_path(archive / "table"), archive / "failed")
    assert batchocr.run(archive / "in", out=archive / "failed", **usual).complete


def test_a_folder_is_continued_in_the_dtype_in_which_it_was_begun(archive: Path, usual: dict[str, Any]) -> None:
    assert metadata_of_rows(archive / "table") == batchocr.open_table(archive / "table").metadata


def test_parts_that_a_killed_run_has_left_are_cleared_away(archive: Path, usual: dict[str, Any]) -> None:
    left = archive / "table" / "part-000009-0123456789abcdef.parquet.0123456789abcdef.tmp"
    left.write_bytes(b"half a part")
    assert batchocr.run(archive / "in", out=archive / "table", **usual).nothing_to_do
    assert not left.exists()


@pytest.mark.long
def test_the_report_of_a_folder_is_named_where_it_is(archive: Path, usual: dict[str, Any]) -> None:
    for out in (archive / "table", f"{archive}/table/"):
        done = run_command(archive / "in", "--out", out, "--model", usual["model"], "--dpi", "72")
        assert f"the report {archive}/table/{OWN_FOLDER}/report.json" in done.stderr


@pytest.mark.long
def test_folders_are_verified_by_their_names_also_those_of_a_glob_that_the_shell_has_expanded(
    archive: Path, usual: dict[str, Any]
) -> None:
    for shard in ("1/2", "2/2"):
        batchocr.run(archive / "in", out=f"{archive}/shard-{shard[0]}/", shard=shard, **usual)
    (archive / "in" / "table.json").write_text("{}")
    allowed = ("--max-degraded-rate", "1")
    assert stand_in.command("verify", f"{archive}/table", str(archive / "in"), *allowed)[0] == 0
    both = sorted(map(str, archive.glob("shard-*")))
    exit_code, shown, logged = stand_in.command("verify", *both, str(archive / "in"), *allowed)
    assert (exit_code, "15 rows expected: nothing wrong" in shown) == (0, True)
    assert f"taken for tables and not for INPUTs, as batchocr wrote them: {both[1]}" in logged


def test_what_a_cluster_of_the_version_before_has_made_is_continued(archive: Path, usual: dict[str, Any]) -> None:
    out = archive / "table"
    shutil.rmtree(out / OWN_FOLDER)
    for name in ("run.json", "report.json"):
        (out / name).write_text("{}")
    draw_pdf(archive / "in" / "new.pdf", "new")
    assert batchocr.run(archive / "in", out=out, **usual).pages_read == 1
    assert rows_in(out) == anew(archive, usual)
    assert [path.name for path in out.iterdir() if path.suffix != ".parquet"] == [OWN_FOLDER]
    (out / "run.json").write_text("somebody's")
    draw_pdf(archive / "in" / "newer.pdf", "newer")
    assert batchocr.run(archive / "in", out=out, **usual).pages_read == 1
    assert (out / "run.json").exists()
