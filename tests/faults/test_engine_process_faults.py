"""Whatever happens to an engine process, at any point: the rows are those of a run to which nothing happens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from batchocr.config import make_config
from batchocr.data import PageResult
from batchocr.job.output_job import read_into_table
from batchocr.job.session import Session
from batchocr.job.stats.report import Report
from batchocr.job.stop import StopSwitch
from batchocr.pages.input.sources import find_documents
from batchocr.processes.child import ENGINE_COMMAND
from batchocr.processes.running_clock import RunningClock
from tests.support.engine_entry import num_started, times_asked, write_faults
from tests.support.running import children, draw_pdf, mapped_pixels, read_rows, texts

pytestmark = pytest.mark.slow

NUM_PAGES = 18
PAGES_IN_FLIGHT = 2
FOREVER_S = 7200.0


class ImpatientClock(RunningClock):
    """Hours go by whenever it is looked at while an engine is stopped or hangs."""

    def now(self) -> float:
        if any(child.status() == psutil.STATUS_STOPPED for child in children()):
            self._total_s += FOREVER_S
        return super().now()


@pytest.fixture(autouse=True)
def nothing_left(engine_processes: None) -> Iterator[None]:
    """No process, no descriptor and no shared memory outlives a run."""
    before, mapped_before = len(os.listdir("/proc/self/fd")), mapped_pixels()
    yield
    assert children() == []
    assert len(os.listdir("/proc/self/fd")) == before
    assert mapped_pixels() <= mapped_before


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_pdf(tmp_path_factory.mktemp("input") / "a.pdf", *(f"Page {number}." for number in range(NUM_PAGES)))


def read(
    documents: Path, model: Path, out: Path, *, command: tuple[str, ...] = ENGINE_COMMAND, **options: object
) -> tuple[Report, list[PageResult]]:
    """Have engines that are started with this command read documents."""
    usual = {"dtype": "float32", "dpi": 72, "workers": 1, "device": "cpu", "pages_in_flight": PAGES_IN_FLIGHT}
    config = make_config({"model": str(model), **usual, **options})
    found = find_documents([str(documents)])
    with closing(Session(config, engine_command=command)) as session:
        report = read_into_table(session, config, found, out, StopSwitch(), None, started_s=0.0)
    assert report.ledger_adds_up
    return report, read_rows(out)


@pytest.fixture(scope="module")
def quiet(document: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[PageResult]:
    """The rows of a run to which nothing happens."""
    report, rows = read(document, model, tmp_path_factory.mktemp("quiet") / "out.parquet")
    assert (report.items.ok, len(rows)) == (NUM_PAGES, NUM_PAGES)
    return rows


# Six in a row before any answer would be taken for a device that is broken for good.
FAULTS = (
    ("before hello", "garbage"),
    ("before hello", "stop"),
    ("before hello", "exit"),
    ("loading", "stop"),
    ("encoding", "segfault"),
    ("hello", "kill"),
    ("loading", "out of memory"),
    ("answers", "torn"),
    ("decoding", "stop"),
    ("encoding", "out of memory"),
    ("decoding", "garbage"),
    ("answers", "kill"),
    ("decoding", "not finite"),
)


@pytest.mark.long
def test_engines_that_fail_one_after_the_other_at_every_point_change_no_row(
    document: Path, model: Path, quiet: list[PageResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchocr.processes.engines.RunningClock", ImpatientClock)
    command = write_faults(tmp_path / "engines", *FAULTS, fresh_page=PAGES_IN_FLIGHT + 1)
    report, rows = read(document, model, tmp_path / "out.parquet", command=command)
    assert num_started(tmp_path / "engines") == len(FAULTS) + 1, "not all faults happened"
    assert [engine.lost for engine in report.engines] == [len(FAULTS)]
    assert texts(rows) == texts(quiet)
    assert {row.attempts for row in rows} == {1}, "a page was rendered again, through no fault of a worker"
    assert max(times_asked(tmp_path / "engines").values()) == 2
