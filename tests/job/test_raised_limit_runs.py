"""Runs that go on with a higher --max-new-tokens, killed or not: the table of a run that had it from the beginning."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

import batchocr
from batchocr import open_table
from batchocr.data import Document, PageResult, Status
from batchocr.errors import OutputMismatchError
from batchocr.job.intake import Intake
from batchocr.job.output_job import _read
from batchocr.job.turns import RowKey
from batchocr.output import parquet
from batchocr.output.index import IndexedRow
from batchocr.output.journal import Entry, Journal
from batchocr.output.schema import RunFacts, fingerprint_of_settings
from tests.support.running import (
    command,
    draw_pdf,
    environment,
    eventually,
    journal,
    make_quick_model,
    num_rows,
    read_rows,
    texts,
)

OPTIONS = {"dpi": 72, "workers": 1, "pages_in_flight": 2}
NUM_PAGES = 8
LOW, HIGH = 5, 200
CUT = [1, 4, 5]


@dataclass(frozen=True)
class Job:
    """A document, the rows of a run with HIGH from the beginning, and what a run with LOW would have left."""

    model: Path
    document: Path
    whole: list[PageResult]
    facts: RunFacts

    @property
    def rows_before(self) -> list[PageResult]:
        return [cut_short(row) if row.page_index in CUT else row for row in self.whole]

    def run(self, out: Path, max_new_tokens: int) -> batchocr.Report:
        return batchocr.run(self.document, out=out, model=self.model, max_new_tokens=max_new_tokens, **OPTIONS)


def cut_short(row: PageResult) -> PageResult:
    first = replace(row.blocks[0], content="wor", output_tokens=LOW, finish_reason="length")
    return replace(
        row,
        status="degraded",
        error_message="block 0 hit the token limit",
        markdown="wor\n",
        blocks=(first, *row.blocks[1:]),
    )


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("raised")
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    document = draw_pdf(folder / "a.pdf", *(f"Page {number}" for number in range(NUM_PAGES)))
    job = Job(make_quick_model(folder / "model"), document, [], RunFacts("", "", "", "", {}))
    job.run(folder / "whole.parquet", HIGH)
    facts = parquet.read_facts(folder / "whole.parquet")
    assert facts is not None
    settings = {**facts.settings, "max_new_tokens": str(LOW)}
    facts = replace(facts, settings=settings, settings_fingerprint=fingerprint_of_settings(settings))
    yield replace(job, whole=read_rows(folder / "whole.parquet"), facts=facts)
    torch.set_num_threads(num_threads)


@pytest.mark.slow
def test_what_the_lower_limit_cut_is_read_again_and_nothing_else(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    parquet.write(out, job.rows_before, job.facts)
    report = job.run(out, HIGH)
    assert (report.pages_read, report.items.already_done) == (len(CUT), NUM_PAGES - len(CUT))
    assert report.ledger_adds_up
    assert report.ink_outside.pages == NUM_PAGES  # of the table, also those of the run before
    rows = read_rows(out)
    assert texts(rows) == texts(job.whole)
    assert [row.page_index for row in rows if row.attempts == 2] == CUT
    assert not journal(out).exists()
    assert job.run(out, HIGH).pages_read == 0
    with pytest.raises(OutputMismatchError, match="a higher --max-new-tokens"):
        job.run(out, LOW)


@pytest.mark.slow
@pytest.mark.parametrize("finished", [True, False] if os.environ.get("BATCHOCR_FULL") else [False])
def test_a_run_killed_on_the_way_goes_on(job: Job, tmp_path: Path, finished: bool) -> None:
    out = tmp_path / "table.parquet"
    if finished:
        parquet.write(out, job.rows_before, job.facts)
        num_before = NUM_PAGES
    else:
        with Journal.open(out, job.facts, resume=True, overwrite=False) as unfinished:
            for row in job.rows_before[: NUM_PAGES - 2]:
                unfinished.append(Entry(row, None, None))
        num_before = NUM_PAGES - 2
    kill_after_a_row(job, out, num_before)
    known = {row.page_index for row in open_table(out, partial=True).rows()}
    assert known >= set(range(num_before))
    report = job.run(out, HIGH)
    assert report.pages_read < len(CUT) + NUM_PAGES - num_before
    assert texts(read_rows(out)) == texts(job.whole)


def kill_after_a_row(job: Job, out: Path, num_before: int) -> None:
    """Run the command with the higher limit, and kill it as soon as its journal has one more row."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    arguments = [job.document, "--out", out, "--model", job.model, f"--max-new-tokens={HIGH}", *flags]
    with subprocess.Popen(command(*arguments), env=environment(), stderr=subprocess.DEVNULL) as process:
        eventually(lambda: process.poll() is not None or num_rows(out) > num_before)
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()


class OneRow:
    """In place of a pass that reads one row, and what it was told about it."""

    def __init__(self, intake: Intake, row: PageResult) -> None:
        self.intake = intake
        self.kept: list[Status] = []
        self.stored: list[Status] = []
        self._row = row

    def results(self, tick: object) -> Iterator[tuple[RowKey, PageResult]]:
        yield RowKey(0, self._row.page_index), self._row

    @contextmanager
    def storing(self, result: PageResult) -> Iterator[None]:
        yield
        self.stored.append(result.status)

    def keeping(self, row: IndexedRow) -> None:
        self.kept.append(row.status)


def test_a_page_that_fails_when_it_is_read_again_stays_as_it_was_and_is_tried_by_the_next_run(tmp_path: Path) -> None:
    settings = [{"max_new_tokens": limit} for limit in ("100", "200")]
    low, high = (RunFacts("0", "m", "f", fingerprint_of_settings(each), each) for each in settings)
    cut = PageResult("a.pdf", 0, "degraded", "d", 1, error_message="block 0 hit the token limit", markdown="half")
    out = tmp_path / "table.parquet"
    with Journal.open(out, low, resume=True, overwrite=False) as before:
        before.append(Entry(cut, 10, 20))
    for _ in range(2):
        with Journal.open(out, high, resume=True, overwrite=False) as after:
            intake = Intake([Document("a.pdf", "a.pdf")], None, after, limit=None)
            intake.opened(0, page_count=1, doc_id="d", size=10, mtime_ns=20)
            assert intake.next_row() == RowKey(0, 0)
            reading = OneRow(intake, PageResult("a.pdf", 0, "failed", "d", 1, error_kind="timeout"))
            _read(reading, after, None)
            assert (reading.kept, reading.stored) == (["degraded"], [])
            assert after.read("a.pdf", 0) == cut
