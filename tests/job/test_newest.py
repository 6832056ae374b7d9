"""The rates hold for what is new, too: in a large table, a night on which everything fails is a small share of all."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import batchocr
from batchocr.config import Config
from batchocr.job import output_job
from batchocr.job.session import Session
from batchocr.job.stats.report import Items, Report
from batchocr.tables.files import report_path
from batchocr.tables.output import Output
from tests.support.documents import block, rows_of
from tests.support.running import QUICK_MODEL, draw_pdf, raising, said_by
from tests.support.tables import put_table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_processes")]

NUM_OLD = 40
OTHERS = ("table.jsonl", "parts")
OPTIONS: dict[str, Any] = {"model": QUICK_MODEL, "device": "cpu", "dtype": "float32", "workers": 1}


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    (folder := tmp_path / "in").mkdir()
    draw_pdf(folder / "book.pdf", *["a page"] * NUM_OLD)
    return folder


def read(documents: Path, name: str = "table.parquet") -> Path:
    """A table of all pages of the book, as a run would have left it."""
    file = (documents / "book.pdf").stat()
    rows = rows_of(documents / "book.pdf", "book.pdf", *[[block("text", "a page")]] * NUM_OLD)
    with closing(Session(Config(**OPTIONS | {"model": str(QUICK_MODEL)}))) as session:
        metadata = replace(session.metadata, input_roots=(str(documents),), selection={})
    out = documents.parent / name
    if not out.suffix:
        out.mkdir()
    of_file = [replace(row, file_bytes=file.st_size, file_mtime_ns=file.st_mtime_ns) for row in rows]
    put_table(out, of_file, metadata, earlier=None, written=lambda digest: None)
    return out


def run(documents: Path, out: Path, **options: Any) -> Report:
    """A run that allows half of all rows to fail: fewer than the old ones are."""
    return batchocr.run(documents, out=out, **OPTIONS | {"max_page_error_rate": 0.5, "max_degraded_rate": 1} | options)


def add_broken(documents: Path, count: int, name: str = "new") -> list[Path]:
    paths = [documents / f"{name}-{number:02}.pdf" for number in range(count)]
    for path in paths:
        path.write_text(f"{path} is no PDF")
    return paths


def mend(documents: Path, *paths: Path) -> None:
    """Put a document in the place of each that can be read: it has the pages of the book, which are not read again."""
    for path in paths:
        shutil.copy(documents / "book.pdf", path)


@pytest.mark.parametrize(
    "name",
    [
        "table.parquet",
        pytest.param("table.jsonl", marks=pytest.mark.long),
        pytest.param("parts", marks=pytest.mark.long),
    ],
)
def test_a_night_that_failed_whole_ends_with_3_and_so_does_its_retry_until_enough_is_mended(
    documents: Path, name: str
) -> None:
    out = read(documents, name)
    new = add_broken(documents, 25)
    failed = run(documents, out)
    assert failed.items.failed / failed.items.found < 0.5
    assert failed.newest == Items(25, 0, 0, 25, 0, 0, 0)
    assert failed.exit_code == 3
    written = {path: path.read_bytes() for path in [out, *out.glob("part*")] if path.is_file()}
    retry = run(documents, out)
    assert (retry.nothing_to_do, retry.newest, retry.exit_code) == (True, failed.newest, 3)
    assert all(path.read_bytes() == content for path, content in written.items())
    assert run(documents, out, retry_failed=True).exit_code == 3
    add_broken(documents, 1, "another")
    assert run(documents, out).exit_code == 3  # one more document is too few to take their place
    mend(documents, new[0])
    assert run(documents, out).exit_code == 0
    assert run(documents, out).exit_code == 0


def test_what_failed_is_remembered_by_runs_that_do_not_look_at_it(documents: Path) -> None:
    out = read(documents)
    new = add_broken(documents, 25)
    assert run(documents, out).exit_code == 3
    written = out.read_bytes()
    assert run(documents, out, sample_documents=1).exit_code == 3
    for path in new:
        path.rename(documents.parent / path.name)  # as where a disk is not mounted
    assert run(documents, out).exit_code == 3
    assert out.read_bytes() == written
    for path in new:
        (documents.parent / path.name).rename(path)
    assert run(documents, out).exit_code == 3
    for path in new:
        path.unlink()
    assert run(documents, out, prune=True).exit_code == 0


def test_what_was_accepted_once_is_old(documents: Path) -> None:
    out = read(documents)
    add_broken(documents, 25)
    assert run(documents, out).exit_code == 3
    assert run(documents, out, max_page_error_rate=1).exit_code == 0
    assert run(documents, out).exit_code == 0


def test_a_night_of_sound_documents_ends_well_though_the_one_before_failed(documents: Path) -> None:
    out = read(documents)
    add_broken(documents, 25)
    assert run(documents, out).exit_code == 3
    mend(documents, documents / "sound.pdf")
    report = run(documents, out, retry_failed=True)
    assert (report.newest, report.exit_code) == (Items(NUM_OLD, NUM_OLD, 0, 0, 0, 0, 0), 0)


def test_a_document_that_has_changed_counts_and_one_that_was_touched_does_not(documents: Path) -> None:
    out = read(documents)
    broken = add_broken(documents, 25)
    assert run(documents, out, max_page_error_rate=1).exit_code == 0
    for path in broken:
        path.touch()
    assert run(documents, out).newest == Items(0, 0, 0, 0, 0, 0, 0)
    for path in broken:
        path.write_text("otherwise")
    assert run(documents, out).exit_code == 3


@pytest.mark.parametrize("killed", ["before its table", "before its report"])
def test_after_a_kill_all_counts_that_came_since_the_last_version(
    documents: Path, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = read(documents)
    add_broken(documents, 25)
    killed_in = (Output, "commit") if killed == "before its table" else (output_job, "write_report")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*killed_in, raising(KeyboardInterrupt()))
        run(documents, out)
    report = run(documents, out)
    assert (report.nothing_to_do, report.newest, report.exit_code) == (True, Items(25, 0, 0, 25, 0, 0, 0), 3)


def test_of_few_new_rows_that_all_failed_there_is_one_warning_and_no_other_exit_code(documents: Path) -> None:
    out = read(documents)
    add_broken(documents, 19)
    flags = ("--model", QUICK_MODEL, "--workers", "1", "--dtype", "float32", "--max-page-error-rate", "0.5")
    code, _, log = said_by("run", documents, "--out", out, *flags, "--quiet")
    assert code == 0
    assert log.count("nothing of the newest documents was read: 19 rows failed") == 1
    code, _, log = said_by("run", documents, "--out", out, *flags)
    assert code == 0
    assert "newest documents" not in log
    assert "nothing new to read" in log


def test_a_first_run_is_judged_once(documents: Path, caplog: pytest.LogCaptureFixture) -> None:
    (documents / "book.pdf").unlink()
    add_broken(documents, 25)
    out = documents.parent / "table.parquet"
    flags = ("--model", QUICK_MODEL, "--workers", "1", "--dtype", "float32")
    code, _, log = said_by("run", documents, "--out", out, *flags)
    assert (code, log.count("25 of 25 rows failed")) == (3, 1)
    assert json.loads(report_path(out).read_text())["newest"] is None
    _, _, log = said_by("run", documents, "--out", out, *flags)
    assert log.count("25 of 25 rows failed") == 1
