"""`run --only` and `merge --prefer`: pages that are doubtful are read again, and put over those of the first table."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import batchocr
from batchocr.config import Config
from batchocr.data import PageResult
from batchocr.documents.audit.audit_table import AUDIT_SCHEMA
from batchocr.errors import NoInputError, OutputError, OutputMismatchError, UsageError
from batchocr.tables.page_list import documents_asked_for, read_page_list
from batchocr.tables.table import table_for
from tests.support.documents import METADATA, write_table
from tests.support.running import draw_pdf, read_rows, run_app, said_by
from tests.support.tables import put_table

pytestmark = pytest.mark.usefixtures("quick_processes")


def write_lines(path: Path, *rows: Mapping[str, object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_of_marks_the_bad_ones_are_named(tmp_path: Path) -> None:
    marks = [("a.pdf", 0, "bad"), ("a.pdf", 1, "good"), ("b.pdf", 3, "good"), ("a.pdf", 7, "bad")]
    rows = [{"source": source, "page_index": page, "mark": mark} for source, page, mark in marks]
    assert read_page_list(write_lines(tmp_path / "marks.jsonl", *rows)) == {"a.pdf": {0, 7}}


def test_of_an_audit_the_pages_with_findings_are_named(tmp_path: Path) -> None:
    finding = {"kind": "omitted", "bbox": [0, 0, 1, 1], "text": "", "second_text": "x", "characters": 1, "weight": 1}
    numbers = dict.fromkeys(("characters", "uncompared", "omitted", "invented", "different", "weight"), 0)
    rows = [
        {"position": page, "source": "a.pdf", "page_index": page, "outcome": "compared", "text_hash": "", **numbers}
        | {"findings": [finding] * page, "left_out": []}
        for page in range(3)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=AUDIT_SCHEMA), tmp_path / "audit.parquet")
    assert read_page_list(tmp_path / "audit.parquet") == {"a.pdf": {1, 2}}


def test_of_another_table_all_rows_are_named_and_one_without_a_page_names_all_pages(tmp_path: Path) -> None:
    table = pa.table({"source": ["a.pdf", "a.pdf", "b.pdf", "b.pdf"], "page_index": [2, 2, 1, None], "x": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "worst.parquet")
    assert read_page_list(tmp_path / "worst.parquet") == {"a.pdf": {2}, "b.pdf": None}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("list.jsonl", '{"source": "a.pdf"}\n', "row 1: it lacks source or page_index"),
        ("list.jsonl", '{"source": "a.pdf", "page_index": 0}\n[]\n', "line 2 is no JSON object"),
        *(
            ("list.jsonl", f'{{"source": "a.pdf", "page_index": {page}}}\n', "row 1: page_index: ")
            for page in ("0.9", "true", '"0"', "[0]", "-1", "Infinity", "1e30")
        ),
        ("list.jsonl", "", "it names no page to read"),
        ("list.jsonl", '{"source": "a.pdf", "page_index": 1, "mark": "good"}\n', "it names no page to read"),
    ],
)
def test_a_file_that_names_no_pages_is_refused(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises((UsageError, OutputError), match=re.escape(said)):
        read_page_list(tmp_path / name)


def test_a_page_that_is_not_a_number_stands_for_all_of_the_document_as_null_does(tmp_path: Path) -> None:
    (tmp_path / "list.jsonl").write_text(
        '{"source": "a.pdf", "page_index": NaN}\n{"source": "b.pdf", "page_index": 2.0}\n'
    )
    assert read_page_list(tmp_path / "list.jsonl") == {"a.pdf": None, "b.pdf": {2}}


def test_a_list_that_is_neither_parquet_nor_json_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("source,page_index\n")
    with pytest.raises(OutputError, match=r"cannot read .*list\.csv: .*Parquet"):
        read_page_list(tmp_path / "list.csv")


def test_documents_that_are_not_there_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    draw_pdf(tmp_path / "a.pdf", "One", "Two")
    listed = tmp_path / "list.jsonl"
    config = Config(only=str(listed))
    write_lines(listed, {"source": "b.pdf", "page_index": 0})
    with pytest.raises(NoInputError, match=r"'b\.pdf' among them: give the INPUTs of the run that named them"):
        documents_asked_for([str(tmp_path)], config)
    write_lines(listed, {"source": "b.pdf", "page_index": 0}, {"source": "a.pdf", "page_index": 1})
    [document] = documents_asked_for([str(tmp_path)], config).documents
    assert (document.source, document.pages) == ("a.pdf", {1})
    assert "of 2 documents that --only names, 1 are not in the INPUTs, 'b.pdf' among them" in caplog.text


@pytest.mark.slow
def test_pages_that_are_named_are_read_again_and_take_the_place_of_the_first(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    draw_pdf(docs / "a.pdf", "One", "Two", "Three")
    draw_pdf(docs / "b.pdf", "Four")
    usual: dict[str, Any] = {"model": model, "workers": 1, "max_degraded_rate": 1}
    first, again, best = (tmp_path / f"{name}.parquet" for name in ("first", "again", "best"))
    batchocr.run(docs, out=first, dpi=72, **usual)
    marks = [("a.pdf", 1), ("a.pdf", 9), ("b.pdf", 0)]
    rows = [{"source": source, "page_index": page, "mark": "bad"} for source, page in marks]
    only = write_lines(tmp_path / "marks.jsonl", *rows)

    report = batchocr.run(docs, out=again, dpi=100, only=only, **usual)
    assert [(row.source, row.page_index) for row in read_rows(again)] == [("a.pdf", 1), ("b.pdf", 0)]
    assert report.items.found == 2
    assert run_app(monkeypatch, "verify", again, docs) == 0, "verify knows which pages were asked for"
    assert batchocr.run(docs, out=again, dpi=100, only=only, **usual).nothing_to_do

    assert run_app(monkeypatch, "merge", first, "--out", best, "--prefer", again) == 0
    expected = {(row.source, row.page_index): row for table in (first, again) for row in read_rows(table)}
    assert read_rows(best) == list(expected.values()), "in the order of the first"
    assert [row.dpi for row in read_rows(best)] == [72, 100, 72, 100]
    assert run_app(monkeypatch, "verify", best, docs) == 0
    drawn = run_app(monkeypatch, "view", best, "--out", tmp_path / "review.html")
    assert drawn == 0, "each page is drawn as it was read"
    with pytest.raises(OutputMismatchError, match=r"preferred dpi 100\S* there, not set here"):
        batchocr.run(docs, out=best, dpi=72, **usual)

    with caplog.at_level(logging.WARNING):
        beyond = write_lines(tmp_path / "beyond.jsonl", rows[1])
        with pytest.raises(NoInputError, match=re.escape(f"any of the pages --only {beyond} asks for")):
            batchocr.run(docs, out=tmp_path / "none.parquet", only=beyond, **usual)


def test_a_preferred_row_that_failed_is_left_out_and_one_of_another_file_is_refused(tmp_path: Path) -> None:
    first = [PageResult("a.pdf", page, "ok", "d", 3, markdown=f"first {page}") for page in range(2)]
    first.append(PageResult("b.pdf", None, "failed", error_kind="timeout", error_message="slow"))
    again = [
        PageResult("a.pdf", 0, "failed", "d", 3, error_kind="timeout", error_message="slow"),
        PageResult("a.pdf", 1, "ok", "d", 3, markdown="again 1"),
        PageResult("a.pdf", 2, "ok", "d", 3, markdown="again 2"),
        PageResult("b.pdf", 0, "ok", "e", 1, markdown="again 0"),
    ]
    part, same = write_table(tmp_path / "1.parquet", first), write_table(tmp_path / "2.parquet", again)
    out = tmp_path / "all.parquet"
    assert said_by("merge", part, "--out", out, "--prefer", same)[0] == 0
    assert [row.markdown for row in table_for(out).read_rows(out)] == ["first 0", "again 1", "again 2", "again 0"]
    assert table_for(out).read_metadata(out) == METADATA, "the same settings: a run goes on with it"
    changed = write_table(tmp_path / "3.parquet", [replace(again[1], doc_id="other")])
    code, _, said = said_by("merge", part, "--out", tmp_path / "none.parquet", "--prefer", changed)
    assert code == 6
    assert re.search(r"a\.pdf has changed between .*1\.parquet and .*3\.parquet", said)


WHOLE = PageResult("a.pdf", None, "failed", error_kind="timeout", error_message="slow")


def read_again(*pages: int, failed: int | None = None) -> list[PageResult]:
    """Rows of these pages of a document of four, one of which failed."""
    rows = [PageResult("a.pdf", page, "ok", "d", 4, markdown=f"again {page}") for page in pages]
    return [replace(row, status="failed", error_kind="timeout") if row.page_index == failed else row for row in rows]


@pytest.mark.parametrize(
    ("selection", "again", "expected"),
    [
        ({}, read_again(0, 1, 2, 3), [0, 1, 2, 3]),
        ({}, read_again(0, 1, 2, 3, failed=2), [0, 1, 2, 3]),
        ({"pages": "2-3"}, read_again(1, 2), [1, 2]),
        ({}, read_again(2), [None]),
        ({}, read_again(0, 1, 2), [None]),
        ({"pages": "2-4"}, read_again(1, 2), [None]),
    ],
    ids=["all", "all, and one failed", "all that were asked for", "one of four", "three of four", "two of three"],
)
def test_the_row_of_a_document_as_a_whole_gives_its_place_to_all_of_its_pages_or_to_none(
    tmp_path: Path, selection: Mapping[str, str], again: list[PageResult], expected: list[int | None]
) -> None:
    part, preferred, out = (tmp_path / f"{name}.parquet" for name in ("part", "again", "out"))
    put_table(part, [WHOLE], replace(METADATA, selection=selection))
    write_table(preferred, again)
    code, _, said = said_by("merge", part, "--out", out, "--prefer", preferred)
    assert (code, [row.page_index for row in read_rows(out)]) == (0, expected)
    assert ("1 document, 'a.pdf' among them, failed as a whole" in said) == (expected == [None])


def test_pages_of_two_versions_of_a_file_do_not_stand_for_a_document_as_a_whole(tmp_path: Path) -> None:
    part, one = write_table(tmp_path / "1.parquet", [WHOLE]), write_table(tmp_path / "2.parquet", read_again(0, 1))
    other = write_table(tmp_path / "3.parquet", [replace(row, doc_id="other") for row in read_again(2, 3)])
    code, _, said = said_by("merge", part, "--out", tmp_path / "out.parquet", "--prefer", one, "--prefer", other)
    assert code == 6
    assert re.search(r"a\.pdf has changed between .*3\.parquet and .*2\.parquet", said)
