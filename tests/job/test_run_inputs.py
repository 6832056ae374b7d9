"""What a run says of its input, and what it does when the input changes between runs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import batchocr
from batchocr.errors import NoInputError, OutputMismatchError
from tests.support.running import draw_pdf, journal, read_rows

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def options(model: Path) -> dict[str, Any]:
    """A model that is quick, and a run that is small."""
    small = {"dpi": 72, "workers": 1, "max_new_tokens": 8, "max_degraded_rate": 1}
    return {"model": model, "dtype": "float32", "device": "cpu", **small}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, made the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def draw(*paths: str) -> None:
    """Write PDFs of one page, no two the same."""
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        draw_pdf(Path(path), path)


def test_a_run_says_which_files_it_skips_when_it_starts_and_in_its_report(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    draw("in/a.pdf")
    for name in ("one.docx", "two.docx", "three.zip"):
        Path("in", name).touch()
    with caplog.at_level(logging.INFO, "batchocr"):
        report = batchocr.run("in", out="table.jsonl", **options)
    [started] = [record for record in caplog.records if getattr(record, "event", "") == "run_started"]
    skipped = "skipped 3 files: 2 .docx, 1 .zip (files that hold documents are read if they are named)"
    assert started.message == f"reading 1 document into table.jsonl; {skipped}"
    assert started.fields["skipped_files"] == report.skipped_files == {".docx": 2, ".zip": 1}  # type: ignore[attr-defined]


@pytest.mark.long
def test_a_folder_with_the_same_file_names_can_be_added_and_nothing_is_read_again(options: dict[str, Any]) -> None:
    draw("a/x.pdf", "a/y.pdf", "b/x.pdf", "b/z.pdf")
    for inputs, num_read in ((["./a"], 2), (["./a", "./b"], 2), (["a/", "b", "./a"], 0)):
        report = batchocr.run(inputs, out="table.parquet", **options)
        assert (report.pages_read, report.exit_code) == (num_read, 0)
    assert [row.source for row in read_rows(Path("table.parquet"))] == ["x.pdf", "y.pdf", "b/x.pdf", "b/z.pdf"]


def test_a_name_that_is_alike_is_no_reason_to_replace_a_table_of_other_documents(options: dict[str, Any]) -> None:
    draw("a/x.pdf", "b/x.pdf", "c/y.pdf")
    out = Path("table.parquet")
    batchocr.run(["a"], out=out, **options)
    with pytest.raises(OutputMismatchError, match=r"x\.pdf"):
        batchocr.run(["c", "b"], out=out, **options)
    assert batchocr.run(["a", "b", "c"], out=out, **options).pages_read == 2
    assert [row.source for row in read_rows(out)] == ["x.pdf", "b/x.pdf", "c/y.pdf"]
    assert len({row.doc_id for row in read_rows(out)}) == 3


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


def test_documents_that_have_none_of_the_pages_asked_for_are_counted_and_named(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    draw("in/a.pdf", *(f"in/{number}.pdf" for number in range(6)))
    draw_pdf(Path("in/long.pdf"), "One", "Two", "Three")
    said = "--pages 3,9: 7 of 8 documents have none of these pages, and no row: 0.pdf (1 page), 1.pdf (1 page), "
    report = batchocr.run("in", out="table.parquet", pages="3,9", **options)
    assert (report.exit_code, [row.source for row in read_rows(Path("table.parquet"))]) == (0, ["long.pdf"])
    [warning] = warnings(caplog)
    assert warning == f"{said}2.pdf (1 page), 3.pdf (1 page), 4.pdf (1 page), …"
    caplog.clear()
    assert len(list(batchocr.process("in", pages="3,9", **options))) == 1
    assert warnings(caplog) == [warning]
    caplog.clear()
    assert len(list(batchocr.process("in", pages="1", limit=1, **options))) == 1
    assert warnings(caplog) == []


def test_a_table_without_a_row_is_an_error_and_replaces_nothing(options: dict[str, Any]) -> None:
    draw("in/a.pdf", "in/b.pdf")
    out = Path("table.parquet")
    batchocr.run("in", out=out, limit=1, **options)
    before = out.read_bytes()
    said = r"no document has any of the pages --pages 5-9 asks for.*longest has 1 page$"
    for overwrite in (False, True):
        with pytest.raises(NoInputError, match=said):
            batchocr.run("in", out=out, pages="5-9", overwrite=overwrite, **options)
        assert out.read_bytes() == before
        assert not journal(out).exists()
    with pytest.raises(NoInputError):
        batchocr.run("in", out="new.parquet", pages="5-9", **options)
    assert not Path("new.parquet").exists()
    assert json.loads(Path("new.parquet.report.json").read_text())["exit_reason"] == "failed"


@pytest.mark.long
def test_a_share_of_the_documents_may_have_no_row(options: dict[str, Any]) -> None:
    draw("in/a.pdf", "in/b.pdf")
    reports = [batchocr.run("in", out=f"{i}.parquet", shard=f"{i}/3", pages="5-9", **options) for i in (1, 2, 3)]
    assert [report.exit_code for report in reports] == [0, 0, 0]
    assert sum(len(read_rows(Path(f"{i}.parquet"))) for i in (1, 2, 3)) == 0
