"""Pages that were read better before: which are counted, and which are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchocr.data import Document, Failure, PageResult, Status
from batchocr.job.row_plan import RowPlan
from batchocr.job.shortfalls import count_worsened, warn_of_worsened
from batchocr.processes.messages import Opened
from batchocr.storage.listing import Documents
from batchocr.tables.journal import Journal
from batchocr.tables.schema import RunMetadata

METADATA = RunMetadata("0.1.0", "acme/reader", "f" * 64, "a" * 64, {"dpi": "200"})


def open_journal(folder: Path) -> Journal:
    return Journal.open(folder / "table.parquet", METADATA, resume=True, overwrite=False)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """The journal of a run that read the three pages of a.pdf, the last of them in part."""
    with open_journal(tmp_path) as journal:
        append(journal, "before", "ok", "ok", "degraded")
        yield journal


def append(journal: Journal, doc_id: str, *statuses: Status) -> None:
    for page_index, status in enumerate(statuses):
        row = PageResult("a.pdf", page_index, status, doc_id, len(statuses))
        journal.append(row)


def plan_of(doc_id: str, page_count: int, spec: str | None = None) -> RowPlan:
    """The plan of a run that has opened the document."""
    plan = RowPlan(Documents([Document("/nowhere/a.pdf", "a.pdf")]), spec, None, limit=None)
    plan.opened(0, Opened(0, page_count, doc_id, 1, 1))
    return plan


@pytest.mark.parametrize(
    ("statuses", "worse"),
    [
        (("ok", "ok", "degraded"), 0),
        (("ok", "ok", "ok", "failed"), 0),
        (("ok", "degraded", "degraded"), 1),
        (("failed", "degraded", "failed"), 3),
        (("ok",), 2),
    ],
)
def test_pages_of_a_changed_file_that_are_worse_or_gone_are_counted(
    journal: Journal, statuses: tuple[Status, ...], worse: int
) -> None:
    append(journal, "now", *statuses)
    assert count_worsened(plan_of("now", len(statuses)), journal) == ({"a.pdf": worse} if worse else {})


def test_they_are_known_to_every_run_that_continues_and_no_longer_once_they_are_read_well(
    journal: Journal, tmp_path: Path
) -> None:
    append(journal, "now", "failed", "ok", "degraded")
    journal.close()
    with open_journal(tmp_path) as continued:
        assert count_worsened(plan_of("now", 3), continued) == {"a.pdf": 1}
        append(continued, "now", "degraded")
        assert count_worsened(plan_of("now", 3), continued) == {"a.pdf": 1}
        append(continued, "restored", "ok")
        assert count_worsened(plan_of("restored", 3), continued) == {}


def test_a_document_that_is_not_there_any_more_loses_none_and_a_damaged_one_all(journal: Journal) -> None:
    plan = RowPlan(
        Documents([Document("/nowhere/a.pdf", "a.pdf", Failure("not_found", "gone"))]), None, None, limit=None
    )
    assert plan.next_document() is None
    assert count_worsened(plan, journal) == {}
    damaged = RowPlan(Documents([Document("/nowhere/a.pdf", "a.pdf")]), None, None, limit=None)
    damaged.cannot_open(0, Failure("damaged", "no PDF"), doc_id="now")
    assert count_worsened(damaged, journal) == {"a.pdf": 3}


def test_pages_that_were_not_asked_for_or_not_reached_do_not_count(journal: Journal) -> None:
    assert count_worsened(plan_of("before", 3, spec="1"), journal) == {}
    assert count_worsened(plan_of("now", 3), journal) == {}
    not_opened = RowPlan(Documents([Document("/nowhere/a.pdf", "a.pdf")]), None, None, limit=None)
    assert count_worsened(not_opened, journal) == {}


def test_the_warning_names_the_documents_and_counts_their_pages(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_worsened({})
    assert caplog.text == ""
    warn_of_worsened({f"{number}.pdf": number for number in range(1, 8)})
    assert "28 pages of 7 documents came out worse than in an earlier run, or not at all" in caplog.text
    assert ": 1.pdf (1 page), 2.pdf (2 pages), 3.pdf (3 pages), 4.pdf (4 pages), 5.pdf (5 pages), …;" in caplog.text
