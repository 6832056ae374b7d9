"""Whatever happens to an engine process, at any point: the rows are those of a run to which nothing happens."""

from __future__ import annotations

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
from batchocr.tables.output import Output
from tests.support.engine_entry import num_started, write_faults
from tests.support.running import children, draw_pdf, read_rows, texts

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("engine_processes", "nothing_left")]

NUM_PAGES = 18
FOREVER_S = 7200.0


class ImpatientClock(RunningClock):
    """Hours go by whenever it is looked at while an engine is stopped or hangs."""

    def now(self) -> float:
        if any(child.status() == psutil.STATUS_STOPPED for child in children()):
            self._total_s += FOREVER_S
        return super().now()


def read(
    documents: Path, model: Path, out: Path, command: tuple[str, ...] = ENGINE_COMMAND
) -> tuple[Report, list[PageResult]]:
    """Have engines that are started with this command read documents."""
    usual = {"dtype": "float32", "dpi": 72, "workers": 1, "device": "cpu", "pages_in_flight": 2}
    config = make_config({"model": str(model), **usual})
    found = find_documents([str(documents)])
    with closing(Session(config, engine_command=command)) as session:
        report = read_into_table(session, config, found, Output(out), StopSwitch(), None)
    assert report.ledger_adds_up
    return report, read_rows(out)


# Six in a row before any answer would be taken for a device that is broken for good.
FAULTS = (
    ("start", "garbage"),
    ("start", "stop"),
    ("start", "exit"),
    ("loading", "stop"),
    ("encoding", "segfault"),
    ("hello", "kill"),
    ("loading", "out of memory"),
    ("answers", "torn"),
    ("decoding", "stop"),
    ("answers", "kill"),
)


@pytest.mark.long
def test_engines_that_fail_one_after_the_other_at_every_point_change_no_row(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = draw_pdf(tmp_path / "a.pdf", *(f"Page {number}." for number in range(NUM_PAGES)))
    _, quiet = read(document, model, tmp_path / "quiet.parquet")
    monkeypatch.setattr("batchocr.processes.engines.RunningClock", ImpatientClock)
    command = write_faults(tmp_path / "engines", *FAULTS)
    report, rows = read(document, model, tmp_path / "out.parquet", command)
    assert num_started(tmp_path / "engines") == len(FAULTS) + 1, "not all faults happened"
    assert [engine.lost for engine in report.engines] == [len(FAULTS)]
    assert texts(rows) == texts(quiet)
    assert {row.attempts for row in rows} == {1}, "a page was rendered again, through no fault of a worker"
