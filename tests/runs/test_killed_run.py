"""The command is killed, looked at, and run again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.jobs import Job, Killed, kill_a_run, make_job, started_as_users_do
from tests.support.running import eventually, is_alive, journal, num_rows, read_rows, texts

pytestmark = pytest.mark.slow

NUM_PAGES = 8


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("job"), NUM_PAGES)


@pytest.fixture(scope="module")
def killed(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return kill_a_run(started_as_users_do, job, tmp_path_factory.mktemp("killed"))


@pytest.fixture
def out(killed: Killed, tmp_path: Path) -> Path:
    """A copy of what the killed run left behind."""
    return Path(shutil.copytree(killed.out.parent, tmp_path / "copy")) / killed.out.name


def test_a_killed_run_leaves_its_journal_and_nothing_else(killed: Killed) -> None:
    assert 3 <= killed.num_rows < NUM_PAGES
    assert sorted(os.listdir(killed.out.parent)) == ["table.parquet.journal", "tmp"]
    assert killed.workers
    eventually(lambda: not any(is_alive(worker) for worker in killed.workers))
    assert os.listdir(killed.folder) == []
    # The shared memory of other tests, which may run alongside this one, goes away by itself.
    eventually(lambda: set(os.listdir("/dev/shm")) <= killed.shared_memory_before)


def test_a_killed_run_goes_on_before_its_torn_line_and_its_table_is_that_of_a_run_without_interruption(
    job: Job, killed: Killed, out: Path
) -> None:
    os.truncate(journal(out), journal(out).stat().st_size - 10)
    num_done = killed.num_rows - 1
    assert num_rows(out) == num_done
    report = job.run(out)
    assert report.pages_read == NUM_PAGES - num_done
    assert (report.items.ok, report.items.already_done) == (NUM_PAGES, num_done)
    assert texts(read_rows(out)) == texts(job.rows)
    assert not journal(out).exists()
