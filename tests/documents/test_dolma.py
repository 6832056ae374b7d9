"""A table as a dataset of olmOCR's rows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchocr.data import PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import AssembledDocument
from batchocr.documents.export import dolma
from batchocr.documents.export.dolma import Dataset, dolma_row, files
from batchocr.documents.export.folder import ExportFolder
from batchocr.documents.export.formats import FormatOptions
from batchocr.errors import OutputError
from tests.support.documents import SolidFigures, block, text_row


def document(source: str, *texts: str, doc_id: str = "d" * 64) -> AssembledDocument:
    """A document with one paragraph on each page, none where it is empty."""
    rows = [
        text_row(source, index, *([block("text", text)] if text else []), doc_id=doc_id)
        for index, text in enumerate(texts)
    ]
    return assemble(source, [replace(row, file_mtime_ns=86_400 * 10**9, output_tokens=5) for row in rows])


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def write(to: Path, documents: Iterable[AssembledDocument]) -> list[Path]:
    with ExportFolder(to) as folder:
        dataset = Dataset(folder)
        for each in documents:
            dataset.add(files(each, "", SolidFigures(), FormatOptions()))  # type: ignore[arg-type]
        dataset.finish()
    return sorted((to / "documents").iterdir())


def test_a_row_has_the_fields_of_olmocr_and_spans_that_are_the_pages() -> None:
    rows = [
        text_row("in/a.pdf", 0, block("title", "One ≤ 1*2"), block("header", "Left out")),
        PageResult("in/a.pdf", 1, "failed", error_kind="timeout", error_message="too long"),
        replace(text_row("in/a.pdf", 2, block("text", "Three.")), output_tokens=7),
    ]
    row = dolma_row(assemble("in/a.pdf", rows))
    assert row["text"] == "# One ≤ 1*2\n\nThree."
    spans = row["attributes"]["pdf_page_numbers"]
    assert [(row["text"][begin:end], number) for begin, end, number in spans] == [
        *(("# One ≤ 1*2", 1), ("", 2), ("Three.", 3)),
    ]
    assert (list(row), row["source"]) == (
        ["id", "text", "source", "added", "created", "version", "metadata", "attributes"],
        "batchocr",
    )
    assert row["metadata"] == {
        "Source-File": "in/a.pdf",
        "doc-id": "d" * 64,
        "pdf-total-pages": 9,
        "total-output-tokens": 7,
        "failed-pages": 1,
        "degraded-pages": 0,
    }


def test_a_document_keeps_its_id_when_it_is_read_again_and_no_other_has_it() -> None:
    first, again = dolma_row(document("a.pdf", "One.")), dolma_row(document("a.pdf", "0ne."))
    others = [document("b.pdf", "One."), document("a.pdf", "One.", doc_id="e" * 64)]
    assert first["id"] == again["id"]
    assert len({first["id"], *(dolma_row(other)["id"] for other in others)}) == 3


def test_a_document_was_created_when_its_file_was_or_nobody_knows_better() -> None:
    row = dolma_row(document("a.pdf", "One."))
    unknown = dolma_row(assemble("a.pdf", [text_row("a.pdf", 0, block("text", "One."))]))
    assert row["created"] == "1970-01-02" < row["added"]
    assert unknown["created"] == unknown["added"]


def test_a_document_without_text_has_no_row(tmp_path: Path) -> None:
    [path] = write(tmp_path, [document("a.pdf", ""), document("b.pdf", "", "Two.")])
    assert [row["metadata"]["Source-File"] for row in rows_in(path)] == ["b.pdf"]


def test_a_file_that_is_full_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dolma, "_FILE_BYTES", 1000)
    documents = [document(f"{number}.pdf", "A sentence." * 20) for number in range(5)]
    paths = write(tmp_path, documents)
    assert [path.name for path in paths] == ["00000.jsonl.gz", "00001.jsonl.gz", "00002.jsonl.gz"]
    assert [len(rows_in(path)) for path in paths] == [2, 2, 1]
    assert [row["metadata"]["Source-File"][0] for path in paths for row in rows_in(path)] == [*"01234"]


def test_the_same_documents_leave_their_files_alone_and_fewer_remove_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dolma, "_FILE_BYTES", 1000)
    documents = [document(f"{number}.pdf", "A sentence." * 20) for number in range(5)]
    before = {path: (path.stat().st_ino, path.read_bytes()) for path in write(tmp_path, documents)}
    assert {path: (path.stat().st_ino, path.read_bytes()) for path in write(tmp_path, documents)} == before
    [first] = write(tmp_path, documents[:2])
    assert before[first][1] == first.read_bytes()
    with ExportFolder(tmp_path) as folder:
        Dataset(folder).finish()
    assert [path.name for path in tmp_path.iterdir()] == [".batchocr-export.sqlite"]


def test_a_file_of_somebody_else_ends_the_export(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents/00000.jsonl.gz").write_text("mine")
    with pytest.raises(OutputError, match=r"documents/00000\.jsonl\.gz was not written by an export to this folder"):
        write(tmp_path, [document("a.pdf", "One.")])
    assert (tmp_path / "documents/00000.jsonl.gz").read_text() == "mine"
