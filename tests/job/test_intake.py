"""Which document is opened next and which row is begun next: in input order, ahead of time, and nothing twice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from batchocr.data import Document, Failure, Status
from batchocr.job.intake import Intake
from batchocr.job.row_queue import RowKey
from batchocr.processes.messages import Opened
from batchocr.tables.index import IndexedRow


@dataclass
class Finished:
    """Stands for the journal: rows of earlier runs, by source."""

    by_source: dict[str, tuple[IndexedRow, ...]] = field(default_factory=dict)

    def sources(self) -> Collection[str]:
        return self.by_source.keys()

    def rows(self, source: str) -> tuple[IndexedRow, ...]:
        return self.by_source.get(source, ())

    def find(self, source: str, page_index: int | None) -> IndexedRow | None:
        return next((row for row in self.rows(source) if row.page_index == page_index), None)


def documents(*names: str) -> list[Document]:
    return [Document(path=f"/nowhere/{name}", source=name) for name in names]


def make_intake(
    found: Sequence[Document], spec: str | None = None, finished: Finished | None = None, **options: Any
) -> Intake:
    return Intake(found, spec, finished, limit=options.pop("limit", None), **options)


def next_to_open(intake: Intake) -> int | None:
    """The next document that has to be opened, past those that need not be; None if there is none."""
    while True:
        num_known = intake.num_known
        index = intake.next_document()
        if index is not None or intake.num_known == num_known:
            return index


def open_next(intake: Intake, page_count: int) -> None:
    """Open the next document, with this many pages."""
    index = next_to_open(intake)
    assert index is not None
    intake.opened(index, Opened(0, page_count, f"id-{index}", 100, 5))


def next_row(intake: Intake, *, postponed: bool = False) -> RowKey | None:
    """Hand out the next row."""
    key = next(intake.queue.candidates(postponed=postponed), None)
    if key is not None:
        intake.queue.take(key)
    return key


def remaining(intake: Intake) -> list[tuple[int, int | None]]:
    """All the rows that can be handed out now."""
    rows = []
    while (key := next_row(intake)) is not None:
        rows.append((key.document, key.page_index))
    return rows


def all_rows(intake: Intake) -> list[tuple[int, int | None]]:
    """The rows of the output."""
    return [(key.document, key.page_index) for key in intake.known_rows()]


def row(
    page_index: int | None,
    *,
    status: Status = "ok",
    doc_id: str | None = "id-0",
    page_count: int | None = 3,
    size: int | None = None,
    mtime_ns: int | None = None,
) -> IndexedRow:
    return IndexedRow(page_index, status, doc_id, page_count, 1, size, mtime_ns, offset=0, length=1)


def test_a_document_that_takes_long_to_open_does_not_hold_up_those_behind_it() -> None:
    intake = make_intake(documents("a", "b", "c"))
    assert [next_to_open(intake) for _ in range(3)] == [0, 1, 2]
    intake.opened(2, Opened(0, 2, "c", 1, 1))
    assert next_row(intake) == RowKey(2, 0)
    intake.opened(0, Opened(0, 1, "a", 1, 1))
    assert remaining(intake) == [(0, 0), (2, 1)]


@pytest.mark.parametrize("options", [{"limit": 10}, {"max_unreleased": 10}])
def test_where_their_order_matters_rows_are_handed_out_in_input_order_however_the_documents_open(
    options: dict[str, int],
) -> None:
    intake = make_intake(documents("a", "b", "c"), **options)
    indices = [next_to_open(intake) for _ in range(3)]
    assert indices == [0, 1, 2]
    assert next_to_open(intake) is None
    intake.opened(2, Opened(0, 1, "c", 1, 1))
    assert next_row(intake) is None
    intake.opened(0, Opened(0, 2, "a", 1, 1))
    assert remaining(intake) == [(0, 0), (0, 1)]
    assert not intake.exhausted
    intake.opened(1, Opened(0, 1, "b", 1, 1))
    assert remaining(intake) == [(1, 0), (2, 0)]
    assert intake.exhausted


def test_the_limit_counts_over_documents_and_later_ones_are_not_opened() -> None:
    intake = make_intake(documents("a", "b", "c"), limit=3)
    open_next(intake, 2)
    assert remaining(intake) == [(0, 0), (0, 1)]
    open_next(intake, 2)
    assert remaining(intake) == [(1, 0)]
    assert intake.exhausted
    assert next_to_open(intake) is None
    assert all_rows(intake) == [(0, 0), (0, 1), (1, 0)]
    assert intake.all_planned


def test_the_limit_means_the_same_rows_when_some_are_done_already() -> None:
    finished = Finished({"a": (row(1, page_count=2),)})
    intake = make_intake(documents("a", "b"), finished=finished, limit=3)
    open_next(intake, 2)
    open_next(intake, 2)
    assert remaining(intake) == [(0, 0), (1, 0)]
    assert all_rows(intake) == [(0, 0), (0, 1), (1, 0)]
    assert intake.num_done_before == 1


def test_a_document_known_to_be_missing_is_a_row_and_never_opened() -> None:
    found = [*documents("a"), Document("/nowhere/b", "b", Failure("not_found", "b does not exist")), *documents("c")]
    intake = make_intake(found)
    assert [next_to_open(intake), next_to_open(intake), next_to_open(intake)] == [0, 2, None]
    assert intake.states[1].problem == Failure("not_found", "b does not exist")
    assert intake.states[1].rows == [None]


def test_a_document_that_cannot_be_opened_is_one_row_and_known_by_its_size_and_time(tmp_path: Path) -> None:
    intake = make_intake(file_with_rows(tmp_path)[0])
    assert next_to_open(intake) == 0
    intake.cannot_open(0, Failure("damaged", "no trailer"), doc_id="id-0")
    assert remaining(intake) == [(0, None)]
    state = intake.states[0]
    assert (state.problem, state.doc_id) == (Failure("damaged", "no trailer"), "id-0")
    assert {"size": state.size, "mtime_ns": state.mtime_ns} == as_it_was(tmp_path)


def test_a_page_spec_picks_pages_of_each_document_among_those_that_it_names() -> None:
    first, *others = documents("a", "b", "c")
    intake = make_intake([replace(first, pages=frozenset((0, 2, 5, 11))), *others], spec="1-2,6-r1")
    for page_count in (9, 6, 0):
        open_next(intake, page_count)
    assert remaining(intake) == [(0, 0), (0, 5), (1, 0), (1, 1), (1, 5), (2, None)]
    assert intake.exhausted


def test_no_documents_are_no_rows() -> None:
    intake = make_intake([])
    assert (next_to_open(intake), next_row(intake)) == (None, None)
    assert intake.exhausted
    assert intake.all_planned


def test_a_row_given_back_comes_before_all_others() -> None:
    intake = make_intake(documents("a"))
    open_next(intake, 4)
    first, second = next_row(intake), next_row(intake)
    assert first is not None
    assert second is not None
    intake.queue.give_back(second)
    intake.queue.give_back(first)
    assert remaining(intake) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    intake.queue.give_back(first)
    assert not intake.exhausted
    assert remaining(intake) == [(0, 0)]
    assert intake.exhausted


def test_a_postponed_document_is_read_on_demand_until_it_is_restored() -> None:
    intake = make_intake(documents("a", "b"))
    open_next(intake, 4)
    open_next(intake, 2)
    first = next_row(intake)
    assert first == RowKey(0, 0)
    intake.queue.postpone(0, on=True)
    intake.queue.give_back(first)
    assert intake.num_rows_ahead == 2
    assert next_row(intake) == RowKey(1, 0)
    assert next_row(intake, postponed=True) == first
    assert next_row(intake, postponed=True) == RowKey(0, 1)
    intake.queue.postpone(0, on=False)
    assert remaining(intake) == [(0, 2), (0, 3), (1, 1)]
    assert intake.exhausted


def file_with_rows(folder: Path, *rows: IndexedRow) -> tuple[list[Document], Finished]:
    """A document of 4 bytes, and its rows from an earlier run."""
    (folder / "a.pdf").write_bytes(b"1234")
    return [Document(str(folder / "a.pdf"), "a.pdf")], Finished({"a.pdf": rows})


def as_it_was(folder: Path) -> dict[str, int]:
    return {"size": 4, "mtime_ns": (folder / "a.pdf").stat().st_mtime_ns}


FAILED = row(None, status="failed", doc_id=None, page_count=None)


@pytest.mark.parametrize(
    ("rows", "options", "begun", "of_the_output"),
    [
        pytest.param([row(0), row(2, status="degraded")], {}, [1], [0, 1, 2], id="done rows are not begun"),
        pytest.param([row(0, status="failed"), row(1), row(2)], {}, [0], [0, 1, 2], id="a failed page is begun again"),
        pytest.param([row(None, status="skipped", page_count=0)], {}, [], [None], id="no pages"),
        pytest.param([row(0), row(1, doc_id="old", size=9, mtime_ns=1)], {}, [1, 2], [0, 1, 2], id="other content"),
        pytest.param([row(0), row(1)], {"spec": "2-3"}, [2], [1, 2], id="rows of pages that are not asked for"),
        pytest.param([row(0, status="failed"), row(1)], {"retry_failed": False}, [2], [0, 1, 2], id="no retries"),
        pytest.param([FAILED], {"retry_failed": False}, [], [None], id="no retries, and never opened"),
        pytest.param(
            [FAILED, row(0, page_count=2), row(1, status="failed", page_count=2)],
            {"retry_failed": False},
            [],
            [0, 1],
            id="no retries, and opened once",
        ),
    ],
)
def test_an_unchanged_document_is_not_opened_and_only_what_is_missing_is_begun(
    tmp_path: Path,
    rows: list[IndexedRow],
    options: dict[str, Any],
    begun: list[int | None],
    of_the_output: list[int | None],
) -> None:
    found, finished = file_with_rows(tmp_path)
    file = as_it_was(tmp_path)
    finished.by_source["a.pdf"] = tuple(each if each.size else replace(each, **file) for each in rows)
    intake = make_intake(found, finished=finished, **options)
    assert next_to_open(intake) is None
    assert remaining(intake) == [(0, page) for page in begun]
    assert all_rows(intake) == [(0, page) for page in of_the_output]
    assert intake.num_done_before == len(of_the_output) - len(begun)


@pytest.mark.parametrize(
    ("row", "page_count", "begun"),
    [
        pytest.param(row(0, size=4, mtime_ns=1), 3, [1, 2], id="touched: it keeps the rows of its content"),
        pytest.param(row(0), 3, [1, 2], id="taken over from a table: it keeps the rows of its content"),
        pytest.param(row(0, doc_id="before", size=4, mtime_ns=1), 2, [0, 1], id="other content"),
        pytest.param(row(None, status="failed", page_count=None), 2, [0, 1], id="failed as a whole"),
    ],
)
def test_a_document_that_may_have_changed_is_opened(
    tmp_path: Path, row: IndexedRow, page_count: int, begun: list[int]
) -> None:
    found, finished = file_with_rows(tmp_path, row)
    intake = make_intake(found, finished=finished)
    open_next(intake, page_count)
    assert remaining(intake) == [(0, page) for page in begun]


def test_a_document_that_has_gone_is_opened_so_that_its_row_says_so() -> None:
    finished = Finished({"a": (row(0, size=4, mtime_ns=1),)})
    assert next_to_open(make_intake(documents("a"), finished=finished)) == 0


def test_documents_known_to_have_none_of_the_pages_asked_for_are_listed_with_their_length() -> None:
    found = documents("short", "long", "empty", "unknown")
    intake = make_intake(found, spec="3-5")
    for page_count in (2, 3, 0):
        open_next(intake, page_count)
    assert intake.documents_without_rows() == [(found[0], 2)]  # a document without pages has a row that says so


def test_many_unchanged_documents_are_looked_at_one_a_call(tmp_path: Path) -> None:
    found, finished = file_with_rows(tmp_path)
    finished.by_source["a.pdf"] = (row(0, page_count=1, **as_it_was(tmp_path)),)
    intake = make_intake(found * 3, finished=finished)
    assert intake.next_document() is None
    assert intake.num_known == 1
    assert next_row(intake) is None
    assert (intake.num_done_before, intake.all_planned, intake.exhausted) == (1, False, False)


def test_without_retries_a_touched_document_that_fails_again_keeps_its_row(tmp_path: Path) -> None:
    found, finished = file_with_rows(tmp_path, row(None, status="failed", page_count=None, size=4, mtime_ns=1))
    intake = make_intake(found, finished=finished, retry_failed=False)
    assert next_to_open(intake) == 0
    intake.cannot_open(0, Failure("damaged", "no trailer"), doc_id="id-0")
    assert remaining(intake) == []


@pytest.mark.parametrize(("limit", "known"), [(None, "a0 a1 a2 c0 c1 c2"), (5, "a0 a1 a2"), (2, "a0 a1")])
def test_the_rows_known_so_far_are_those_of_opened_documents_that_belong_to_the_output(
    limit: int | None, known: str
) -> None:
    intake = make_intake(documents("a", "b", "c"), limit=limit)
    for expected in range(3):
        assert next_to_open(intake) == expected
    for index in (2, 0):
        intake.opened(index, Opened(0, 3, "0", 1, 1))
    assert " ".join(f"{'abc'[key.document]}{key.page_index}" for key in intake.known_rows()) == known
    assert (intake.num_planned, intake.num_rows_ahead) == (6 if limit is None else limit, 6)
