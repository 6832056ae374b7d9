"""A disk that fills up at each point where a run writes: exit code 6 with an error message, and nothing lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from batchocr.errors import OutputError
from batchocr.tables.files import leftovers_of
from tests.support.jobs import Job, make_job, started, wait_for_rows
from tests.support.running import journal, num_rows, read_rows, texts
from tests.support.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.slow

NUM_PAGES = 10


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("job"), NUM_PAGES)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path) as disk:
        if disk is None:
            pytest.skip("no disk can be mounted here: it takes `unshare` and user namespaces")
        yield disk


def require_refused(job: Job, out: Path, *, path: Path, **options: object) -> None:
    """Run the job, and require it to say that the disk is full."""
    said = f"cannot write {path}: the disk is full; free some space and run again to continue"
    with pytest.raises(OutputError, match=re.escape(said)) as refused:
        job.run(out, **options)
    assert refused.value.exit_code == 6


def test_a_disk_that_is_full_while_rows_are_written_costs_only_the_rows_without_room(job: Job, disk: SmallDisk) -> None:
    out = disk.folder / "table.jsonl"
    disk.fill(leave_blocks=2)
    require_refused(job, out, path=journal(out))
    finished = num_rows(out)
    assert 0 < finished < NUM_PAGES
    assert journal(out).read_bytes().endswith(b"\n")
    disk.free()
    assert job.run(out).pages_read == NUM_PAGES - finished
    assert texts(read_rows(out)) == texts(job.rows)


def test_a_disk_that_is_full_while_the_table_is_written_costs_no_row_and_leaves_the_table_before(
    job: Job, disk: SmallDisk
) -> None:
    out = disk.folder / "table.jsonl"
    job.run(out, limit=NUM_PAGES - 1)
    before = read_rows(out)
    disk.fill(leave_blocks=2)  # room for a journal of one row, but not for a second table
    require_refused(job, out, path=out)
    assert read_rows(out) == before
    assert num_rows(out) == 1
    assert not list(leftovers_of([out, journal(out)]))
    disk.free()
    assert job.run(out).pages_read == 0
    assert texts(read_rows(out)) == texts(job.rows)


@pytest.mark.long
def test_a_disk_that_is_full_while_the_report_is_written_leaves_the_table(
    job: Job, disk: SmallDisk, tmp_path: Path
) -> None:
    out, report = tmp_path / "table.parquet", disk.folder / "report.json"
    disk.fill(leave_blocks=0)
    require_refused(job, out, path=report, report=report)
    assert texts(read_rows(out)) == texts(job.rows)
    disk.free()
    assert job.run(out, report=report).pages_read == 0
    assert json.loads(report.read_text())["items"]["already_done"] == NUM_PAGES


@pytest.mark.long
def test_a_file_size_limit_ends_a_run_with_a_sentence_and_keeps_its_rows(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    with started(job, out) as process:
        wait_for_rows(process, out, NUM_PAGES // 2)
        limit = journal(out).stat().st_size + 100
        psutil.Process(process.pid).rlimit(psutil.RLIMIT_FSIZE, (limit, limit))
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 6
    assert f"error: cannot write {journal(out)}: files may not grow any larger here" in said
    finished = num_rows(out)
    report = json.loads(Path(f"{out}.report.json").read_text())
    assert (report["exit_reason"], report["ledger_adds_up"]) == ("failed", True)
    assert job.run(out).pages_read == NUM_PAGES - finished
    assert texts(read_rows(out)) == texts(job.rows)
