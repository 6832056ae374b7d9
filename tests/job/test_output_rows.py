"""Which rows a table has at the end of a run, of documents that the run did not come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchocr.data import Document, PageResult
from batchocr.job.output_rows import OutputRows
from batchocr.job.row_plan import RowPlan
from batchocr.pages.input.sources import Found
from batchocr.processes.messages import Opened
from batchocr.storage.listing import Documents
from batchocr.tables.journal import Journal
from batchocr.tables.known import Kept, read
from tests.support.documents import METADATA, write_table

FAILED = PageResult("b", None, "failed", error_kind="unreadable")
PAGE = PageResult("b", 0, "ok", "2", 1)


@pytest.mark.parametrize(("rows", "kept"), [([FAILED, PAGE], [PAGE]), ([FAILED], [FAILED]), ([PAGE], [PAGE])])
def test_a_document_behind_the_limit_keeps_its_pages_and_not_what_was_said_of_it_before_it_could_be_opened(
    tmp_path: Path, rows: list[PageResult], kept: list[PageResult]
) -> None:
    first = PageResult("a", 0, "ok", "1", 1)
    documents = [Document("a", "a", size=1, mtime_ns=1), Document("b", "b", size=1, mtime_ns=1)]
    with Journal.open(tmp_path / "out.parquet", METADATA, resume=True, overwrite=False) as journal:
        for row in [first, *rows]:
            journal.append(row)
        plan = RowPlan(Documents(documents), None, journal, limit=1)
        assert plan.next_document() == 0
        plan.opened(0, Opened(1, 1, "1", 1, 1))
        rows_of = OutputRows(plan, journal, Found(documents, {}), prune=False)
        assert [read(row) for row in rows_of if not isinstance(row, Kept)][1:] == kept


@pytest.mark.parametrize(
    ("names", "prune", "in_order", "is_there"),
    [
        ("ab", False, True, True),
        ("a", False, True, True),  # the other stays
        ("a", True, True, False),
        ("ba", False, True, False),
        ("ba", False, False, True),
    ],
)
def test_with_nothing_new_the_table_that_is_there_has_the_rows_unless_some_are_left_out_or_move(
    tmp_path: Path, names: str, prune: bool, in_order: bool, is_there: bool
) -> None:
    rows = [PageResult(name, page, "ok", name, 2, file_bytes=1, file_mtime_ns=1) for name in "ab" for page in (0, 1)]
    write_table(tmp_path / "out.parquet", rows)
    documents = [Document(name, name, size=1, mtime_ns=1) for name in names]
    with Journal.open(tmp_path / "out.parquet", METADATA, resume=True, overwrite=False) as journal:
        plan = RowPlan(Documents(documents), None, journal, limit=None)
        assert plan.next_document() is None
        found = OutputRows(plan, journal, Found(documents, {}), prune=prune)
        assert found.are_the_table(in_order=in_order) == is_there


def test_a_document_that_an_unfinished_run_has_read_and_that_is_gone_stays_behind_the_one_read_before_it(
    tmp_path: Path,
) -> None:
    documents = [Document(name, name, size=1, mtime_ns=1) for name in "bd"]
    with Journal.open(tmp_path / "out.parquet", METADATA, resume=True, overwrite=False) as journal:
        for name in "abcd":
            journal.append(PageResult(name, 0, "ok", name, 1, file_bytes=1, file_mtime_ns=1))
        plan = RowPlan(Documents(documents), None, journal, limit=None)
        assert plan.next_document() is None
        rows = [*OutputRows(plan, journal, Found(documents, {}), prune=False)]
    assert [row.source for row in rows if not isinstance(row, Kept)] == ["a", "b", "c", "d"]


class Listing(Documents):
    """Documents that are made when they are asked for; `num_made` says how many were."""

    num_made = 0

    def __getitem__(self, index: Any) -> Any:
        self.num_made += 1
        return super().__getitem__(index)


def test_nothing_is_kept_of_documents_that_are_as_the_table_says_and_their_rows_are_found_without_a_look_at_them(
    tmp_path: Path,
) -> None:
    names = [f"{number}.pdf" for number in range(150)]
    rows = [PageResult(name, 0, "ok", name, 1, file_bytes=1, file_mtime_ns=1) for name in names]
    write_table(tmp_path / "out.parquet", rows)
    listing = Listing(Document(name, name, size=1, mtime_ns=1) for name in [*names[100:], *names[:50]])
    with Journal.open(tmp_path / "out.parquet", METADATA, resume=True, overwrite=False) as journal:
        plan = RowPlan(listing, None, journal, limit=None)
        while not plan.is_complete:
            assert plan.next_document() is None
        listing.num_made = 0
        found = OutputRows(plan, journal, Found(Documents(), {}), prune=True)
        assert [*found] == [Kept(100, 150), Kept(0, 50)]
    assert (listing.num_made, len(plan.states), len(found.gone)) == (1, 0, 50)  # the one that others followed
