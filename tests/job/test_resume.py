"""A run that ended midway, for whatever reason, and is run again: the same table, nothing read twice."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import batchocr
from batchocr import PageResult
from batchocr.config import Config
from batchocr.documents.assembly.assemble import open_table
from batchocr.errors import ModelError, NoInputError, OutputError, OutputMismatchError, UsageError
from batchocr.job.progress import RunProgress
from batchocr.job.session import Session
from batchocr.job.stats.report import require_place
from batchocr.job.stop import StopSwitch
from batchocr.tables import parquet
from batchocr.tables.files import record_path, report_path, temporary_path
from batchocr.tables.journal import Journal
from tests.support.jobs import Job, Killed, kill_a_run, make_job, started
from tests.support.running import (
    draw_pdf,
    journal,
    raising,
    read_rows,
    said_by,
    texts,
    workers_of,
)

pytestmark = pytest.mark.slow

NUM_PAGES = 8
OPTIONS = {"dpi": 72, "workers": 1, "pages_in_flight": 2, "max_degraded_rate": 1}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("job"), NUM_PAGES)


@pytest.fixture(scope="module")
def killed(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return kill_a_run(started, job, tmp_path_factory.mktemp("killed"))


@pytest.fixture
def out(killed: Killed, tmp_path: Path) -> Path:
    """A copy of what the killed run left behind."""
    return Path(shutil.copytree(killed.out.parent, tmp_path / "copy")) / killed.out.name


def test_what_a_killed_run_has_read_is_shown_from_any_folder(
    killed: Killed, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal says where the documents are, as the table would."""
    assert open_table(killed.out, partial=True).input_roots == [str(job.documents), os.getcwd()]
    monkeypatch.chdir(tmp_path)
    assert said_by("view", killed.out, "--partial")[0] == 0
    assert 'id="picture-0">UklGR' in (tmp_path / "review.html").read_text()  # RIFF, as a WebP begins


def test_an_unfinished_output_of_other_settings_is_refused_until_it_is_to_be_overwritten(job: Job, out: Path) -> None:
    before = journal(out).read_bytes()
    with pytest.raises(OutputMismatchError, match="dpi 72 there, 50 here") as refusal:
        job.run(out, dpi=50)
    assert refusal.value.exit_code == 6
    with pytest.raises(OutputMismatchError, match="belongs to a run that is unfinished"):
        job.run(out, resume=False)
    assert journal(out).read_bytes() == before
    report = job.run(out, dpi=50, overwrite=True, limit=2)
    assert (report.pages_read, report.items.found, report.items.already_done) == (2, 2, 0)
    assert [row.width for row in read_rows(out)] == [105, 105]


def test_a_finished_output_run_again_loads_no_model_and_keeps_its_rows(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "batchocr")
    monkeypatch.setattr(Session, "load", raising(ModelError("it would take minutes")))
    table = job.documents.parent / "whole.parquet"
    report = job.run(table)
    assert (report.pages_read, report.items.already_done, report.items.ok) == (0, NUM_PAGES, NUM_PAGES)
    assert read_rows(table) == job.rows
    assert caplog.text == ""


def test_a_document_that_failed_is_tried_again_and_a_changed_one_read_again(job: Job, tmp_path: Path) -> None:
    folder, out = tmp_path / "documents", tmp_path / "table.parquet"
    folder.mkdir()
    draw_pdf(folder / "a.pdf", "sound")
    (folder / "b.pdf").write_bytes(b"%PDF-1.7 and no more")

    def run(**options: object) -> tuple[int, list[tuple[str, int | None, str, int]]]:
        report = batchocr.run(folder, out=out, model=job.model, max_new_tokens=2, **(OPTIONS | options))
        assert report.ledger_adds_up
        return report.pages_read, [(row.source, row.page_index, row.status, row.attempts) for row in read_rows(out)]

    assert run() == (1, [("a.pdf", 0, "degraded", 1), ("b.pdf", None, "failed", 1)])
    assert run(retry_failed=True) == (0, [("a.pdf", 0, "degraded", 1), ("b.pdf", None, "failed", 2)])
    draw_pdf(folder / "b.pdf", "repaired")
    os.utime(folder / "a.pdf")
    assert run(retry_failed=False) == (1, [("a.pdf", 0, "degraded", 1), ("b.pdf", 0, "degraded", 1)])
    draw_pdf(folder / "a.pdf", "another", "and one more")
    assert run() == (
        2,
        [("a.pdf", 0, "degraded", 1), ("a.pdf", 1, "degraded", 1), ("b.pdf", 0, "degraded", 1)],
    )


def test_no_page_of_another_file_stands_under_the_name_of_the_one_that_was_there_before(
    job: Job, tmp_path: Path
) -> None:
    document, out = tmp_path / "a.pdf", tmp_path / "table.parquet"
    draw_pdf(document, *(f"Page {number}" for number in range(5)))
    other = draw_pdf(tmp_path / "other.pdf", *(f"Another page {number}, with more to say" for number in range(5)))
    first = shutil.copy2(document, tmp_path / "first.pdf")
    options = {"model": job.model, **OPTIONS}

    def replace_after_the_first_row(state: RunProgress) -> None:
        if state.done and other.exists():
            os.replace(other, document)

    report = batchocr.run(document, out=out, progress=replace_after_the_first_row, **options)
    os.replace(first, document)
    rows = read_rows(out)
    assert (rows[0].status, rows[-1].status, rows[-1].error_kind) == ("ok", "failed", "changed")
    assert report.errors == {"changed": report.items.failed}
    assert report.exit_code == 3

    again = batchocr.run(document, out=out, **options)
    assert (again.pages_read, again.items.failed) == (report.items.failed, 0)
    whole = batchocr.run(document, out=tmp_path / "whole.parquet", **options)
    assert whole.pages_read == 5
    assert texts(read_rows(out)) == texts(read_rows(tmp_path / "whole.parquet"))


@pytest.mark.long
def test_a_document_that_was_cut_off_since_it_was_read_is_named_and_an_exit_code_once(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    document, out = tmp_path / "a.pdf", tmp_path / "table.jsonl"
    options = {"out": out, "model": job.model, **OPTIONS}
    draw_pdf(document, "One", "Two", "Three")
    assert batchocr.run(document, **options).exit_code == 0
    draw_pdf(document, "One")
    report = batchocr.run(document, **options)
    assert (report.exit_code, report.worse_documents, report.worse_pages) == (3, 1, 2)
    assert "2 pages of 1 document came out worse than in an earlier run, or not at all" in caplog.text
    assert f"{document} (2 pages)" in caplog.text
    assert len(read_rows(out)) == 1
    assert batchocr.run(document, **options).exit_code == 0


def test_a_run_does_not_read_its_own_output(job: Job, tmp_path: Path) -> None:
    draw_pdf(tmp_path / "a.pdf", "One")
    out = tmp_path / "table.jsonl"
    options = {"out": out, "model": job.model, "max_new_tokens": 16, **OPTIONS}
    for _ in range(2):
        report = batchocr.run(tmp_path / "*", **options)
        assert (report.documents, report.items.failed) == (1, 0)
        left = temporary_path(out)
        left.write_text("what a killed run left")
    assert set(tmp_path.iterdir()) == {tmp_path / "a.pdf", out, record_path(out), report_path(out), left}
    with pytest.raises(OutputMismatchError, match="run with the same, choose another --out"):
        batchocr.run(tmp_path / "*", **options | {"max_new_tokens": 32})
    (tmp_path / "a.pdf").unlink()
    with pytest.raises(NoInputError, match="the run's own output"):
        batchocr.run(tmp_path / "*", **options, overwrite=True)
    assert len(read_rows(out)) == 1


def test_a_report_in_the_place_of_the_output_is_refused(job: Job, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="where the run's own output goes"):
        job.run(tmp_path / "table.jsonl", report=f"{tmp_path}/../{tmp_path.name}/table.jsonl.meta.json")
    assert list(tmp_path.iterdir()) == []


def test_a_report_replaces_nothing_but_a_report(job: Job, tmp_path: Path) -> None:
    picture, usual = tmp_path / "a.png", tmp_path / "table.parquet.report.json"
    picture.write_bytes(b"\x89PNG")
    usual.write_text('{"mine": 1}')
    for report in (str(picture), None):
        with pytest.raises(OutputError, match="is no report: it is left as it is"):
            job.run(tmp_path / "table.parquet", report=report)
    assert picture.read_bytes() == b"\x89PNG"
    assert usual.read_text() == '{"mine": 1}'
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", usual.name}
    usual.write_bytes(b"")
    require_place(usual)


def test_the_table_is_built_when_the_work_is_over(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_workers = []
    write = parquet.write_into

    def noting(*args: Any, **options: Any) -> str:
        num_workers.append(len(workers_of(psutil.Process())))
        return write(*args, **options)

    monkeypatch.setattr(parquet, "write_into", noting)
    assert job.run(tmp_path / "table.parquet", limit=1).table_seconds > 0
    assert num_workers == [0]


def test_a_run_that_fails_leaves_a_report_that_says_so_and_a_later_one_goes_on(
    job: Job, killed: Killed, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for broken, error, said in (
        ("engine.decode_stage.DecodeStage.run", RuntimeError("the device is gone"), "the device is gone"),
        ("processes.worker.Worker.__init__", OSError("no more"), "a worker process cannot be started"),
        ("tables.parquet.write_into", RuntimeError("a bug"), "RuntimeError: a bug"),
    ):
        with monkeypatch.context() as patched, pytest.raises((batchocr.BatchOcrError, RuntimeError)):
            patched.setattr(f"batchocr.{broken}", raising(error))
            job.run(out)
        report = json.loads(report_path(out).read_text())
        assert (report["exit_reason"], report["complete"], report["ledger_adds_up"]) == ("failed", False, True)
        assert said in report["error"]
        assert report["items"]["already_done"] <= killed.num_rows
    assert job.run(out).items.ok == NUM_PAGES


@pytest.mark.long
def test_a_run_can_be_stopped_while_it_goes_past_documents_that_have_not_changed(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchocr.job.run._TRIM_INTERVAL_S", 0)
    folder, out, stop = tmp_path / "documents", tmp_path / "table.parquet", StopSwitch()
    folder.mkdir()
    with closing(Session(Config(model=str(job.model), workers=1))) as session:
        metadata = session.metadata
    with Journal.open(out, metadata, resume=True, overwrite=False) as journal:
        for number in range(1000):
            (folder / f"{number:04}.pdf").write_bytes(b"unchanged")
            file = (folder / f"{number:04}.pdf").stat()
            row = PageResult(f"{number:04}.pdf", 0, "ok", doc_id=str(number), page_count=1)
            journal.append(replace(row, file_bytes=file.st_size, file_mtime_ns=file.st_mtime_ns))
    report = batchocr.run(
        folder, out=out, model=job.model, workers=1, stop=stop, progress=lambda _: stop.request("terminated")
    )
    assert report.exit_reason == "stopped"
    assert report.items.already_done == report.items.found
    assert 0 < report.items.found < 1000
    assert report.documents_not_opened == 1000 - report.items.found
    assert batchocr.run(folder, out=out, model=job.model, workers=1).items.already_done == 1000


def test_the_journal_is_told_that_time_passes_before_the_first_row_and_after_it(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    had_rows: set[bool] = set()
    monkeypatch.setattr(Journal, "tick", lambda journal: had_rows.add(journal.known.has_rows))
    job.run(tmp_path / "table.parquet")
    assert had_rows == {False, True}
