"""Tables are read as one, finished or not, whatever version of the columns they have."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import batchocr
from batchocr.data import MAX_PAGES, Block, PageResult
from batchocr.documents.assembly.assemble import open_table
from batchocr.documents.assembly.document import Piece
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.tables import jsonl, schema
from batchocr.tables.files import journal_path, record_path
from batchocr.tables.journal import Journal
from batchocr.tables.opened import open_rows
from batchocr.tables.schema import PAGE_SCHEMA, RunMetadata
from tests.support.documents import METADATA, text_row, write_table
from tests.support.running import said_by
from tests.support.tables import put_table
from tests.support.typeset import Heading, Paragraph, typeset

pytestmark = pytest.mark.usefixtures("quick_processes")


def page(source: str, index: int, markdown: str = "text\n", **more: object) -> PageResult:
    fields = {"doc_id": "d" * 64, "page_count": 3, "markdown": markdown, "ink_outside": 0.25} | more
    return PageResult(source, index, "ok", **fields)  # type: ignore[arg-type]


def write(path: Path, *rows: PageResult, metadata: RunMetadata = METADATA) -> Path:
    return write_table(path, rows, metadata)


def write_journal(out: Path, *rows: PageResult) -> None:
    with Journal.open(out, METADATA, resume=True, overwrite=False) as journal:
        for row in rows:
            journal.append(row)


def test_the_parts_in_a_folder_are_read_in_natural_order(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        write(tmp_path / f"part-{number}.jsonl", page(f"{number}.pdf", 0))
    (tmp_path / "part-1.jsonl.report.json").write_text("{}")
    expected = [page(f"{number}.pdf", 0) for number in (1, 2, 10)]
    for names in (
        tmp_path,
        str(tmp_path / "part-*"),
        sorted(tmp_path.glob("*.jsonl"), key=lambda path: len(path.name)),
    ):
        assert list(open_table(names).rows()) == expected


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl"])
def test_rows_come_by_document_and_as_arrow(tmp_path: Path, name: str) -> None:
    rows = [page("a.pdf", 0), page("a.pdf", 1), page("b.pdf", 0)]
    table = batchocr.open_table(write(tmp_path / name, *rows))
    assert list(table.by_document()) == [("a.pdf", rows[:2]), ("b.pdf", rows[2:])]
    expected = pa.Table.from_pylist(list(map(schema.to_row, rows)), schema=PAGE_SCHEMA)
    assert table.to_arrow() == table.to_batches().read_all() == expected
    assert table.metadata == METADATA


def test_a_document_that_is_in_two_tables_comes_twice(tmp_path: Path) -> None:
    old, new = ([page("a.pdf", index, said) for index in (0, 1)] for said in ("old\n", "new\n"))
    write(tmp_path / "1.jsonl", *old)
    write(tmp_path / "2.jsonl", *new, page("b.pdf", 0))
    write(tmp_path / "3.jsonl", page("b.pdf", 1))
    expected = [("a.pdf", old), ("a.pdf", new), ("b.pdf", [page("b.pdf", 0), page("b.pdf", 1)])]
    assert list(open_table(tmp_path).by_document()) == expected


def test_parts_of_other_settings_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", page("a.pdf", 0))
    write(tmp_path / "2.jsonl", page("b.pdf", 0), metadata=replace(METADATA, settings_fingerprint="b" * 64))
    with pytest.raises(OutputMismatchError, match=r"2\.jsonl was made with other settings than .*1\.jsonl"):
        open_table(tmp_path)


def test_an_unfinished_run_is_read_from_its_journal(tmp_path: Path) -> None:
    out = tmp_path / "t.parquet"
    write_journal(out, page("b.pdf", 1), page("a.pdf", 0), page("b.pdf", 0), page("b.pdf", 1, "again\n"))
    with pytest.raises(OutputError, match="--partial"):
        open_table(out)
    expected = [page("b.pdf", 0), page("b.pdf", 1, "again\n"), page("a.pdf", 0)]
    for names in (out, journal_path(out), tmp_path, str(tmp_path / "*.parquet")):
        assert list(open_table(names, partial=True).rows()) == expected


def test_a_journal_that_is_being_written_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    with Journal.open(out, METADATA, resume=True, overwrite=False) as journal:
        journal.append(page("a.pdf", 0))
        with journal_path(out).open("ab") as other:
            other.write(b'{"result":{"source":"a.pdf","page_index":1')
        assert list(open_table(out, partial=True).rows()) == [page("a.pdf", 0)]


def test_partial_takes_the_table_where_no_run_is_unfinished(tmp_path: Path) -> None:
    write(tmp_path / "1.jsonl", page("a.pdf", 0))
    write_journal(tmp_path / "2.jsonl", page("b.pdf", 0))
    assert [row.source for row in open_table(tmp_path, partial=True).rows()] == ["a.pdf", "b.pdf"]


@pytest.mark.parametrize(
    ("name", "partial"),
    [
        ("t.parquet.report.json", False),
        ("t.parquet.report.json", True),
        ("t.jsonl.meta.json", False),
        ("t.parquet.journal", False),
    ],
)
def test_what_a_run_leaves_beside_its_table_is_told_from_a_table(tmp_path: Path, name: str, partial: bool) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(OutputError, match=f"{name} is not a table, but a file that a run leaves beside one"):
        open_table(tmp_path / name, partial=partial)


def test_other_json_lines_in_a_folder_are_left_out_and_a_table_without_its_metadata_is_not(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", page('a "scan".pdf', 0))
    chunk = {"id": "0", "source": "a.pdf", "pages": [0], "text": "text"}
    mark = {"source": "a.pdf", "page_index": 0, "doc_id": "d" * 64, "status": "ok", "mark": "good"}
    (tmp_path / "a.chunks.jsonl").write_text(json.dumps(chunk) + "\n")
    (tmp_path / "empty.chunks.jsonl").touch()
    (tmp_path / "marks.jsonl").write_text(json.dumps(mark, separators=(",", ":")) + "\n")
    for partial in (False, True):
        assert [part.path for part in open_table(tmp_path, partial=partial).parts] == [path]
    with pytest.raises(OutputError, match=r"marks\.jsonl lacks markdown, blocks"):
        open_table(tmp_path / "marks.jsonl")
    rows = list(open_table(path).rows())
    record_path(path).unlink()
    assert list(open_table(tmp_path).rows()) == rows
    path.unlink()
    with pytest.raises(OutputError, match="there is no table"):
        open_table(tmp_path)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    (tmp_path / "torn.parquet").write_bytes(write(tmp_path / "t.parquet", page("a.pdf", 0)).read_bytes()[:-500])
    (tmp_path / "lines.jsonl").write_text("{}\n")
    for name in ("other.parquet", "torn.parquet", "lines.jsonl", "absent.parquet", "none-*.jsonl"):
        with pytest.raises(OutputError, match=name.replace("*", r"\*")):
            open_table(tmp_path / name)
    assert jsonl.read_metadata(tmp_path / "lines.jsonl") is None


@pytest.mark.slow
def test_documents_come_with_the_levels_of_their_outlines_where_the_files_are(tmp_path: Path) -> None:
    headings = [Heading(name, level=level) for level, name in enumerate(("One", "Two", "Three"), start=1)]
    set = typeset([part for heading in headings for part in (heading, Paragraph("Text."))])
    (tmp_path / "set.pdf").write_bytes(set.pdf())
    doc_id = hashlib.sha256((tmp_path / "set.pdf").read_bytes()).hexdigest()
    table = write(tmp_path / "t.parquet", *(replace(row, doc_id=doc_id) for row in set.rows))
    for roots, levels in (([tmp_path], [1, 2, 3]), ([], [1, 2, 2])):
        [document] = batchocr.open_table(table).documents(roots)
        assert document.source == "set.pdf"
        assert [part.level for part in document.parts if isinstance(part, Piece) and part.level] == levels


def test_a_file_that_changed_while_it_was_read_is_the_version_of_most_rows(tmp_path: Path) -> None:
    rows = [text_row("a.pdf", page, doc_id=version * 64) for page, version in enumerate("1221222")]
    table = write(tmp_path / "t.parquet", *rows)
    [document] = batchocr.open_table(table).documents([])
    assert document.doc_id == "2" * 64


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl", "parts"])
@pytest.mark.parametrize(
    "forged",
    [{"page_index": 2**40}, {"page_index": -5}, {"page_index": MAX_PAGES + 1}, {"page_count": 2**62}],
    ids=lambda forged: "-".join(map(str, *forged.items())),
)
def test_every_reader_refuses_a_page_that_no_document_can_have(
    tmp_path: Path, name: str, forged: dict[str, int]
) -> None:
    (tmp_path / "a.pdf").touch()
    table, sound, to = tmp_path / name, write(tmp_path / "sound.parquet", page("a.pdf", 0)), tmp_path / "made"
    if name == "parts":
        table.mkdir()
    put_table(table, [page("a.pdf", 0), replace(page("a.pdf", 1), **forged)], METADATA)
    wrong = rf"cannot read \S*: {next(iter(forged))}: .*; it is damaged: "
    for arguments in (
        ("export", table, "--to", to, "--format", "md,mineru,dolma"),
        ("view", table, "--out", to.with_suffix(".html")),
        ("verify", table, tmp_path / "a.pdf"),
        ("merge", table, sound, "--out", to.with_suffix(".parquet")),
        ("compare", sound, table),
        ("audit", table, "--out", to.with_suffix(".audit.parquet")),
    ):
        code, _, said = said_by(*arguments)
        assert (code, bool(re.search(wrong, said))) == (6, True), (arguments, said)
    with pytest.raises(OutputError, match=wrong):
        Journal.open(table, METADATA, resume=True, overwrite=False)


@pytest.mark.parametrize("forged", [{"dpi": math.nan}, {"ink_outside": math.inf}, {"confidence": -math.inf}])
def test_every_reader_refuses_a_number_that_is_not_finite(
    tmp_path: Path, forged: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_block = forged if "confidence" in forged else {}
    row = page("a.pdf", 0, blocks=(replace(Block("text", (0.1, 0.2, 0.5, 1.0), 0, "x"), **of_block),))
    with monkeypatch.context() as patch:
        patch.setattr(schema, "storable", lambda row: row)  # which no run does without
        table = write(tmp_path / "t.parquet", row if of_block else replace(row, **forged))
    for arguments in (
        ("export", table, "--to", tmp_path / "made", "--format", "md,docling"),
        ("view", table, "--out", tmp_path / "made.html"),
    ):
        code, _, said = said_by(*arguments)
        assert (code, "Input should be a finite number" in said) == (6, True), (arguments, said)
    made = tmp_path / "made.parquet"
    if said_by("merge", table, "--out", made)[0] == 0:  # which copies what it does not look at
        code, _, said = said_by("export", made, "--to", tmp_path / "texts")
        assert (code, "Input should be a finite number" in said) == (6, True), said


@pytest.mark.parametrize("forged", [{"page_index": 2**40}, {"page_index": -5}, {"page_count": 2**62}])
def test_a_page_that_no_document_can_have_counts_as_not_there_in_a_journal(
    tmp_path: Path, forged: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "t.parquet"
    write_journal(out, page("a.pdf", 0), replace(page("a.pdf", 1), **forged), page("a.pdf", 2))
    assert [row.page_index for row in open_rows(out, partial=True).rows()] == [0, 2]
    with Journal.open(out, METADATA, resume=True, overwrite=False) as journal:
        assert [row.page_index for row in journal.known.rows("a.pdf")] == [0, 2]
    assert "is damaged in 1 line, first in line 3" in caplog.text
