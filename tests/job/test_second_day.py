"""The second day: a run over an output that exists removes nothing unasked, and says what it found."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pymupdf
import pytest

import batchocr
from batchocr.cli.options import as_local_path
from batchocr.cli.verifier import Verifier, asked_for
from batchocr.config import Config
from batchocr.errors import ModelError, NoInputError, OutputError, OutputMismatchError, UsageError
from batchocr.job.session import Session
from batchocr.job.stats.report import Items
from batchocr.pages.input.sources import find_documents
from batchocr.tables.files import journal_path, report_path
from tests.support.jobs import Job, started, wait_for_rows
from tests.support.running import draw_pdf, raising, read_rows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory, model: Path) -> dict[str, Any]:
    usual = {"dpi": 72, "workers": 2, "pages_in_flight": 4, "max_degraded_rate": 1}
    return {"out": tmp_path_factory.mktemp("second day") / "job" / "table.parquet", "model": model, **usual}


@pytest.fixture(scope="module")
def first_day(options: dict[str, Any]) -> Path:
    """A folder with documents of three, one and two pages, and the table that a run made of them."""
    share = options["out"].parent / "share"
    share.mkdir(parents=True)
    draw_pdf(share / "a.pdf", "One", "Two", "Three")
    draw_pdf(share / "b.pdf", "Four")
    draw_pdf(share / "c.pdf", "Five", "Six")
    assert batchocr.run(share, **options).pages_read == len(ALL)
    return Path(shutil.move(share.parent, share.parents[1] / "first day"))


@pytest.fixture
def finished(first_day: Path, options: dict[str, Any]) -> Path:
    """The documents, where the run read them, and its table."""
    shutil.rmtree(options["out"].parent, ignore_errors=True)
    return Path(shutil.copytree(first_day, options["out"].parent)) / "share"


@pytest.fixture
def share(finished: Path, options: dict[str, Any]) -> Path:
    """The documents without a table."""
    for path in finished.parent.glob("table.*"):
        path.unlink()
    return finished


def places(out: Path) -> list[tuple[str, int | None]]:
    return [(row.source, row.page_index) for row in read_rows(out)]


ALL = [("a.pdf", 0), ("a.pdf", 1), ("a.pdf", 2), ("b.pdf", 0), ("c.pdf", 0), ("c.pdf", 1)]


def test_a_share_that_is_not_mounted_costs_no_row_and_is_named(
    share: Path, options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (other := tmp_path / "other").mkdir()
    draw_pdf(other / "d.pdf", "Seven")
    batchocr.run([other, share], **options)
    before = places(options["out"])
    shutil.move(share, tmp_path / "elsewhere")
    share.mkdir()
    report = batchocr.run([other, share], **options)
    assert places(options["out"]) == before
    assert (report.exit_code, report.rows_gone, report.items.found) == (0, 6, 1)
    assert f"{share} holds no document, or is cut, and 6 rows of the table came from there: is it" in caplog.text
    [said] = [record for record in caplog.records if getattr(record, "event", "") == "input_empty"]
    assert said.__dict__["fields"] == {"input": str(share), "rows": 6}
    pruned = batchocr.run([other, share], **options, prune=True)
    assert places(options["out"]) == before
    assert pruned.rows_gone == 0


def test_asking_for_fewer_pages_or_rows_keeps_the_others(finished: Path, options: dict[str, Any]) -> None:
    first = read_rows(options["out"])
    for fewer, found in (({"limit": 2}, 2), ({"pages": "1"}, 3), ({"pages": "2", "limit": 1}, 1)):
        report = batchocr.run(finished, **options, **fewer)
        assert read_rows(options["out"]) == first
        assert (report.pages_read, report.items.found, report.rows_not_asked) == (0, found, 6 - found)
        assert json.loads(report_path(options["out"]).read_text())["items"]["already_done"] == found
        assert not journal_path(options["out"]).exists()


def test_a_document_that_is_gone_stays_behind_the_one_it_followed(finished: Path, options: dict[str, Any]) -> None:
    (finished / "b.pdf").unlink()
    draw_pdf(finished / "aa.pdf", "new")
    draw_pdf(finished / "0.pdf", "first")
    report = batchocr.run(finished, **options)
    assert places(options["out"]) == [("0.pdf", 0), *ALL[:4], ("aa.pdf", 0), *ALL[4:]]
    assert (report.rows_gone, report.rows_not_asked, report.items.found) == (1, 0, 7)


def test_a_document_whose_content_changed_is_replaced_whole(finished: Path, options: dict[str, Any]) -> None:
    draw_pdf(finished / "a.pdf", "other", "content", "here")
    batchocr.run(finished, **options, pages="1")
    assert places(options["out"]) == [("a.pdf", 0), *ALL[3:]]


@pytest.mark.long
def test_a_sample_is_the_same_in_every_run_and_grows(share: Path, options: dict[str, Any]) -> None:
    batchocr.run(share, sample_documents=1, **options)
    [first] = {source for source, _ in places(options["out"])}
    assert batchocr.run(share, sample_documents=1, **options).nothing_to_do
    config = Config(**asked_for(batchocr.open_table(options["out"]).metadata.selection, None))
    found = find_documents([str(share)], stdin=None, sample=config.sample_documents)
    verifier = Verifier([options["out"]], config)
    assert list(verifier.findings(found.documents, None)) == [], "verify knows the sample"
    batchocr.run(share, sample_documents=2, **options)
    drawn = {source for source, _ in places(options["out"])}
    assert first in drawn and len(drawn) == 2
    batchocr.run(share, **options)
    report = batchocr.run(share, sample_documents=1, **options)
    assert (places(options["out"]), report.rows_gone) == (ALL, 0)
    assert report.rows_not_asked == sum(source != first for source, _ in ALL)


def test_a_file_that_is_named_and_not_there_keeps_its_rows_and_counts_as_failed(
    share: Path, options: dict[str, Any]
) -> None:
    files = [str(share / name) for name in ("a.pdf", "b.pdf")]
    batchocr.run(files, **options)
    before = places(options["out"])
    (share / "a.pdf").rename(share / "away")
    report = batchocr.run(files, **options)
    assert places(options["out"]) == before
    assert (report.items.failed, report.rows_gone, report.worse_pages, report.exit_code) == (1, 3, 0, 3)
    (share / "away").rename(share / "a.pdf")
    report = batchocr.run(files, **options)
    assert places(options["out"]) == before
    assert (report.pages_read, report.rows_gone, report.exit_code) == (0, 0, 0)


@pytest.mark.parametrize("prune", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_wrong_password_does_not_cost_the_pages_that_were_read(
    share: Path, options: dict[str, Any], prune: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with pymupdf.open(share / "a.pdf") as document:
        locked = document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="right")
    (share / "a.pdf").write_bytes(locked)
    batchocr.run(share, **options, password="right")
    before = places(options["out"])
    os.utime(share / "a.pdf")  # else it is not opened
    report = batchocr.run(share, **options, password="wrong", prune=prune)
    assert places(options["out"]) == before
    assert (report.items.failed, report.rows_gone, report.pages_read, report.exit_code) == (1, 0, 0, 3)
    assert "a.pdf: " in caplog.text and "password" in caplog.text and "its 3 rows stay" in caplog.text
    assert "not there" not in caplog.text


def test_prune_removes_what_is_not_there_or_not_asked_for_and_says_so(
    finished: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (finished / "c.pdf").unlink()
    report = batchocr.run(finished, **options, pages="1", prune=True)
    assert places(options["out"]) == [("a.pdf", 0), ("b.pdf", 0)]
    assert (report.rows_gone, report.rows_not_asked) == (2, 2)
    assert "2 rows of documents that are not there removed: c.pdf (2 pages)" in caplog.text
    assert "2 rows of pages that were not asked for removed: a.pdf (2 pages)" in caplog.text


def test_what_was_pruned_does_not_come_back_where_a_document_has_failed(
    finished: Path, options: dict[str, Any]
) -> None:
    (finished / "d.pdf").write_bytes(b"%PDF-1.7")
    batchocr.run(finished, **options, max_page_error_rate=1)
    (finished / "c.pdf").unlink()
    batchocr.run(finished, **options, prune=True)
    pruned = places(options["out"])
    assert pruned == [*ALL[:4], ("d.pdf", None)]
    draw_pdf(finished / "e.pdf", "new")
    batchocr.run(finished, **options, max_page_error_rate=1)
    assert places(options["out"]) == [*pruned, ("e.pdf", 0)]


def test_nothing_is_lost_by_a_kill_in_between(finished: Path, options: dict[str, Any]) -> None:
    """Rows of a finished table, then of a run that is killed, then of one that asks for less."""
    out = options["out"]
    before = read_rows(out)
    for number in range(4):
        draw_pdf(finished / f"d{number}.pdf", *["more"] * 3)
    with started(Job(options["model"], finished, []), out) as process:
        wait_for_rows(process, out, len(ALL) + 3)
    assert read_rows(out) == before
    in_journal = journal_path(out).read_bytes().count(b"\n") - 1
    (finished / "b.pdf").unlink()
    report = batchocr.run(finished, **options, limit=1)
    assert (report.exit_code, report.items.found, report.pages_read) == (0, 1, 0)
    assert [row for row in read_rows(out) if row.source < "d"] == before
    assert len(places(out)) == len(set(places(out))) == len(ALL) + in_journal
    assert len(places(out)) == 1 + report.rows_gone + report.rows_not_asked


def test_one_broken_file_in_a_thousand_is_no_failed_job_and_a_batch_read_in_part_is() -> None:
    usual = Config()
    rates = usual.max_page_error_rate, usual.max_degraded_rate, usual.max_doubtful_rate
    assert not Items.of(Counter(ok=999, failed=1), found=1000).exceeded(*rates)
    assert Items.of(Counter(ok=94, failed=6), found=100).exceeded(*rates)
    assert Items.of(Counter(ok=7, degraded=85), found=92).exceeded(*rates)
    assert not Items.of(Counter(ok=92), found=92).exceeded(*rates, doubtful=92)


@pytest.mark.long
def test_doubtful_pages_are_counted_in_the_run_and_in_verify(share: Path, options: dict[str, Any]) -> None:
    draw_pdf(share / "d.pdf", "Words that no quick model reads")
    report = batchocr.run(share, **options, max_doubtful_rate=0)
    assert report.doubtful == 1
    assert report.exit_code == 3
    verifier = Verifier([options["out"]], Config())
    found = find_documents([str(share)]).documents
    assert not list(verifier.findings(found, None))
    assert verifier.traits["doubtful"] == report.doubtful


def test_a_damaged_file_that_has_not_changed_loads_no_model_and_what_may_succeed_is_tried_again(
    finished: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (finished / "torn.pdf").write_bytes(b"%PDF-1.7 and no more")
    assert batchocr.run(finished, **options).items.failed == 1
    with monkeypatch.context() as patched:
        patched.setattr(Session, "load", raising(ModelError("it would take minutes")))
        assert batchocr.run(finished, **options).nothing_to_do
        tried = batchocr.run(finished, **options, retry_failed=True)
        assert (tried.nothing_to_do, tried.errors) == (False, {"damaged": 1})
    with pymupdf.open(finished / "b.pdf") as document:
        locked = document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="right")
    (finished / "locked.pdf").write_bytes(locked)
    assert batchocr.run(finished, **options).errors["encrypted"] == 1
    assert batchocr.run(finished, **options, password="right").errors == {"damaged": 1}


def test_overwrite_replaces_no_file_of_somebody_else(share: Path, options: dict[str, Any], tmp_path: Path) -> None:
    lines, table = tmp_path / "mine.jsonl", tmp_path / "mine.parquet"
    lines.write_text('{"mine": 1}\n')
    pq.write_table(pa.table({"source": ["a"], "mine": [1]}), table)
    for out in (lines, table):
        before = out.read_bytes()
        with pytest.raises(OutputMismatchError, match="was not written by batchocr: it is left as it is"):
            batchocr.run(share, **{**options, "out": out}, overwrite=True)
        assert out.read_bytes() == before
    lines.write_bytes(b"")
    assert batchocr.run(share, **{**options, "out": lines}, overwrite=True, limit=2).items.found == 2


def test_nothing_is_written_to_a_file_that_is_called_like_standard_output() -> None:
    for flag in ("--out", "--to"):
        with pytest.raises(UsageError, match=r"name a file or folder, \./- for one named -"):
            as_local_path(flag, "-")


@pytest.mark.parametrize(("is_there", "error"), [(False, UsageError), (True, NoInputError)])
def test_a_sole_input_that_is_not_mounted_is_said_to_have_rows_that_stay(
    finished: Path, options: dict[str, Any], is_there: bool, error: type[Exception]
) -> None:
    shutil.rmtree(finished)
    if is_there:
        finished.mkdir()
    before = options["out"].read_bytes()
    with pytest.raises(error, match="rows of the table came from there, and are kept: is it mounted"):
        batchocr.run(finished, **options)
    with pytest.raises(error) as fresh:
        batchocr.run(finished, **options | {"out": options["out"].parent / "new.parquet"})
    assert "mounted" not in str(fresh.value)
    assert options["out"].read_bytes() == before


def test_empty_stdin_is_said_to_be_empty() -> None:
    with pytest.raises(NoInputError, match="looked in stdin, which names none"):
        find_documents(["-"], stdin=io.StringIO("\n"))


def test_view_of_a_damaged_table_does_not_advise_to_lose_it(finished: Path, options: dict[str, Any]) -> None:
    data = bytearray(options["out"].read_bytes())
    data[len(data) // 2] ^= 1
    options["out"].write_bytes(data)
    with pytest.raises(OutputError, match="restore it, or read the documents again with `batchocr run") as damaged:
        list(batchocr.open_table(options["out"]).rows())
    assert "start over" not in str(damaged.value)
