"""The documents of a table, put together, from Python."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

import batchocr
from batchocr.documents.assembly.document import Piece
from batchocr.tables.schema import RunMetadata
from batchocr.tables.table import table_for
from tests.support.documents import text_row, write_table
from tests.support.typeset import Heading, Paragraph, typeset

pytestmark = pytest.mark.slow


def test_documents_come_with_the_levels_of_their_outlines_where_the_files_are(tmp_path: Path) -> None:
    set = typeset([Heading("One", level=1), Paragraph("Text."), Heading("Two", level=2), Paragraph("More.")])
    (tmp_path / "set.pdf").write_bytes(set.pdf())
    doc_id = hashlib.sha256((tmp_path / "set.pdf").read_bytes()).hexdigest()
    rows = [replace(row, doc_id=doc_id) for row in set.rows]
    table = tmp_path / "t.parquet"
    table_for(table).write(table, rows, RunMetadata("0.1.0", "a model", "c" * 64, "a" * 64, {"dpi": "200"}))
    for roots, levels in (([tmp_path], [1, 2]), ([], [1, 1])):
        [document] = batchocr.open_table(table).documents(roots)
        assert document.source == "set.pdf"
        assert [part.level for part in document.parts if isinstance(part, Piece) and part.level] == levels


def test_a_file_that_changed_while_it_was_read_is_the_version_of_most_rows(tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    rows = [text_row("a.pdf", page, doc_id=version * 64) for page, version in enumerate("1221222")]
    write_table(table, rows)
    [document] = batchocr.open_table(table).documents([])
    assert document.doc_id == "2" * 64
