"""Documents of the same bytes: one is read, the others have its rows, whatever becomes of it on the way.

The workers and the engines exist only here; plan, loop and journal are those of a run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from batchocr.data import Document, Failure, PageResult
from batchocr.job.output_job import _counting_on
from batchocr.job.row_plan import RowPlan
from batchocr.job.stop import StopSwitch
from batchocr.storage.listing import Documents
from batchocr.tables import parquet
from batchocr.tables.files import journal_path
from batchocr.tables.journal import Journal
from batchocr.tables.known import is_failed_again
from batchocr.tables.schema import RunMetadata
from tests.support.given_rows import known_rows
from tests.support.simulated import CRASHES, DAMAGED, HANGS, Simulated, SimulatedMachine

METADATA = RunMetadata("1", "m", "m", "s", {})


@dataclass
class Job:
    """Documents by name, read into one journal in as many runs as there are calls. begun: the pages that the last run
    gave to workers, each as often as it did."""

    out: Path
    documents: dict[str, Simulated]
    begun: list[tuple[str, int]] = field(default_factory=list)
    num_documents: int = 0

    def run(
        self,
        *,
        stop_at: int | None = None,
        workers: int = 2,
        limit: int | None = None,
        pages: str | None = None,
        retry_failed: bool = True,
        reads_all: bool = False,
    ) -> dict[tuple[str, int | None], PageResult]:
        """The rows in the journal, by source and page. stop_at: end after so many rows of this run."""
        machine = SimulatedMachine(self.documents, workers)
        with self.journal() as journal:
            plan = RowPlan(
                Documents(Document(name, name) for name in self.documents),
                pages,
                journal,
                limit=limit,
                retry_failed=retry_failed,
                reads_all=reads_all,
            )
            stop, seen = StopSwitch(), set()
            for key, result in machine.pipeline(plan).results(stop, lambda: None):
                assert key not in seen, "a row was emitted twice"
                seen.add(key)
                earlier = journal.known.find(result.source, result.page_index)
                if earlier is None or not is_failed_again(result, earlier):
                    journal.append(_counting_on(result, earlier))
                if len(seen) == stop_at:
                    stop.request()
            assert plan.is_complete or stop_at is not None
            self.begun = sorted(machine.begun.elements())
            self.num_documents = plan.copies.num_documents
            if not plan.is_complete:
                return {}
            rows = [journal.read(self._name(key.document), key.page_index) for key in known_rows(plan)]
            return {(row.source, row.page_index): row for row in rows}

    def _name(self, number: int) -> str:
        return list(self.documents)[number]

    @contextmanager
    def journal(self) -> Iterator[Journal]:
        with Journal.open(self.out, METADATA, resume=True, overwrite=False) as journal:
            yield journal


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.parquet"


def sound(doc_id: str, num_pages: int = 3) -> Simulated:
    return Simulated([0.1] * num_pages, doc_id=doc_id)


def status(rows: dict[tuple[str, int | None], PageResult]) -> str:
    """A letter for each row."""
    return "".join(row.status[0] for row in rows.values())


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_of_copies_one_is_read_and_each_has_its_rows(out: Path, workers: int) -> None:
    job = Job(out, {"a": sound("1"), "b": sound("2", 2), "c": sound("1"), "d": sound("1"), "e": sound("2", 2)})
    rows = job.run(workers=workers)
    assert status(rows) == "o" * 13
    assert len(job.begun) == 5
    assert {page for _, page in job.begun} == {0, 1, 2}
    assert job.num_documents == 3
    assert {(row.source, row.doc_id, row.page_count) for row in rows.values()} == {
        *(("a", "1", 3), ("b", "2", 2), ("c", "1", 3), ("d", "1", 3), ("e", "2", 2))
    }
    assert sorted(row.attempts for row in rows.values()) == [0] * 8 + [1] * 5, "of a copy, no page was tried"
    alone = Job(out.with_name("alone.parquet"), job.documents)
    unshared = alone.run(reads_all=True)
    assert len(alone.begun) == 13
    assert {key: replace(row, attempts=1) for key, row in rows.items()} == unshared


def test_a_copy_that_is_opened_when_the_first_is_finished_has_its_rows_at_once(out: Path) -> None:
    slow = replace(sound("1"), open_s=30.0)
    job = Job(out, {"a": slow, "b": sound("1"), "c": slow})
    assert status(job.run()) == "o" * 9
    assert job.begun == [("b", 0), ("b", 1), ("b", 2)]


def test_without_a_journal_each_is_read() -> None:
    machine = SimulatedMachine({"a": sound("1"), "b": sound("1")})
    plan = RowPlan(Documents([Document(name, name) for name in "ab"]), None, None, limit=None)
    rows = list(machine.pipeline(plan).results(StopSwitch(), lambda: None))
    assert len(rows) == machine.begun.total() == 6


def test_one_that_claims_another_number_of_pages_is_read(out: Path) -> None:
    job = Job(out, {"a": sound("1"), "b": sound("1", 2)})
    assert status(job.run()) == "ooooo"
    assert len(job.begun) == 5


@pytest.mark.parametrize(("takes_s", "kind"), [(CRASHES, "crashed"), (HANGS, "timeout")])
def test_a_deadly_page_is_tried_in_one_file_only_and_its_copies_say_so(out: Path, takes_s: float, kind: str) -> None:
    deadly = Simulated([0.1, takes_s, 0.1], doc_id="1")
    job = Job(out, {"a": deadly, "b": deadly, "c": deadly})
    rows = job.run()
    assert status(rows) == "ofo" * 3
    assert [page for _, page in job.begun].count(1) == 2
    [tried] = [row.source for row in rows.values() if row.page_index == 1 and row.attempts == 2]
    for source in {"a", "b", "c"} - {tried}:
        row = rows[source, 1]
        assert (row.error_kind, row.attempts) == (kind, 0)
        assert row.error_message == f"{rows[tried, 1].error_message} (not tried here: it is the same file as {tried})"
    again = job.run()
    assert [page for _, page in job.begun].count(1) == len(job.begun) == 2
    assert status(again) == "ofo" * 3
    assert sorted(row.attempts for row in again.values() if row.status == "failed") == [0, 0, 4]
    job.run(retry_failed=False)
    assert job.begun == []


def test_a_page_that_is_read_in_a_later_run_is_read_for_its_copies_as_well(out: Path) -> None:
    deadly = Simulated([0.1, CRASHES], doc_id="1")
    job = Job(out, {"a": deadly, "b": deadly})
    assert status(job.run()) == "ofof"
    job.documents = {"a": sound("1", 2), "b": sound("1", 2)}
    assert status(job.run()) == "oooo"
    assert len(job.begun) == 1


@pytest.mark.parametrize("kind", ["changed", "not_found", "unreadable"])
def test_what_is_wrong_with_the_place_of_one_file_is_not_said_of_its_copies(out: Path, kind: str) -> None:
    gone = replace(sound("1"), problem=Failure(kind, "gone"))  # type: ignore[arg-type]
    rows = (job := Job(out, {"a": gone, "b": sound("1"), "c": sound("1")})).run()
    assert status(rows) == "fff" + "o" * 6
    assert {row.error_message for row in rows.values()} == {"gone", None}
    assert job.run() == {key: replace(row, attempts=2) if key[0] == "a" else row for key, row in rows.items()}


def test_what_is_wrong_with_its_content_is(out: Path) -> None:
    damaged = replace(sound("1"), problem=DAMAGED)
    job = Job(out, {"a": damaged, "b": damaged})
    assert status(job.run()) == "f" * 6
    assert len(job.begun) == 3


@pytest.mark.parametrize("limit", range(1, 9))
def test_a_limit_means_the_same_rows_as_without_copies(out: Path, limit: int) -> None:
    job = Job(out, {"a": sound("1", 2), "b": sound("1", 2), "c": sound("2", 1), "d": sound("1", 2), "e": sound("2", 1)})
    rows = job.run(limit=limit)
    alone = Job(out.with_name("alone.parquet"), job.documents).run(limit=limit, reads_all=True)
    assert {key: replace(row, attempts=1) for key, row in rows.items()} == alone
    assert len(rows) == limit
    assert len(job.begun) == min(limit, 2) + (limit > 4)
    job.run(limit=8)
    assert len(job.begun) == 3 - (min(limit, 2) + (limit > 4))


def test_only_the_pages_that_are_asked_for_are_copied(out: Path) -> None:
    job = Job(out, {"a": sound("1", 9), "b": sound("1", 9)})
    assert list(job.run(pages="2,r1")) == [("a", 1), ("a", 8), ("b", 1), ("b", 8)]
    assert len(job.begun) == 2
    assert len(job.run(pages="1-2")) == 4
    assert [page for _, page in job.begun] == [0]


def test_a_new_copy_of_what_an_earlier_run_has_read_needs_no_reading(out: Path) -> None:
    job = Job(out, {"a": sound("1")})
    job.run()
    job.documents = {"a": sound("1"), "b": sound("1")}
    assert status(job.run()) == "o" * 6
    assert job.begun == []


def test_a_document_that_was_renamed_is_not_read_again(out: Path) -> None:
    job = Job(out, {"a": sound("1"), "b": Simulated([0.1, CRASHES], doc_id="2")})
    before = job.run()
    job.documents = {"moved/a": sound("1"), "moved/b": Simulated([0.1, CRASHES], doc_id="2")}
    rows = job.run(retry_failed=False)
    assert job.begun == [] and job.num_documents == 2
    assert [(row.markdown, row.status) for row in rows.values()] == [
        (row.markdown, row.status) for row in before.values()
    ]
    failed = before["b", 1].error_message
    assert rows["moved/b", 1].error_message == f"{failed} (not tried here: it is the same file as b)"
    job.documents = {"again/b": Simulated([0.1, CRASHES], doc_id="2")}
    assert "same file as b)" in str(job.run(retry_failed=False)["again/b", 1].error_message)
    job.run()
    assert job.begun == [("again/b", 1)] * 2, "what failed is tried again under its new name"


def test_of_a_document_that_was_renamed_only_the_new_pages_are_read(out: Path) -> None:
    job = Job(out, {"a": sound("1", 4)})
    job.run(pages="1-2")
    job.documents = {"b": sound("1", 4), "c": sound("1", 4)}
    assert status(job.run()) == "o" * 8
    assert sorted(page for _, page in job.begun) == [2, 3]


def finish(job: Job) -> None:
    """Make a table of what was read, and delete the journal, as the end of a run does."""
    parquet.write(job.out, job.run().values(), METADATA)
    journal_path(job.out).unlink()


def test_after_a_kill_in_the_middle_of_a_copy_the_rest_is_copied_too(out: Path) -> None:
    job = Job(out, {"a": sound("1")})
    first = job.run()["a", 0]
    finish(job)
    with job.journal() as journal:
        journal.append(replace(first, source="b", attempts=0))
    job.documents = {"b": sound("1")}
    assert status(job.run()) == "ooo"
    assert job.begun == []


def test_a_copy_has_the_rows_of_the_first_of_the_table_with_its_bytes(out: Path) -> None:
    job = Job(out, {"a": sound("1")})
    finish(job)
    job.documents = {"a": sound("1"), "b": sound("1")}
    parquet.write(out, list(job.run().values())[:4], METADATA)
    journal_path(out).unlink()
    job.documents = {"c": sound("1")}
    assert status(job.run()) == "ooo"
    assert job.begun == []


def test_a_file_that_has_taken_the_name_of_another_is_read(out: Path) -> None:
    job = Job(out, {"scan": sound("1")})
    job.run()
    job.documents = {"scan": sound("2"), "scan-1": sound("1")}
    rows = job.run(workers=1)
    assert {(row.source, row.doc_id) for row in rows.values()} == {("scan", "2"), ("scan-1", "1")}
    assert {source for source, _ in job.begun} >= {"scan"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_however_a_run_is_stopped_and_whatever_fails_each_row_is_there_once_and_nothing_is_read_twice_in_a_run(
    out: Path, seed: int
) -> None:
    chance = random.Random(seed)
    weights = [4, 4, 1, 0.5 * (seed % 2)]
    contents = [
        Simulated(chance.choices([0.01, 0.1, 5.0, CRASHES], weights, k=chance.randint(1, 6)), doc_id=str(number))
        for number in range(4)
    ]
    opened = [replace(chance.choice(contents), open_s=chance.choice([0.01, 3.0])) for _ in range(9)]
    job = Job(out, {f"{number}": document for number, document in enumerate(opened)})
    workers, limit = chance.randint(1, 4), chance.choice([None, None, chance.randint(1, 30)])
    rows: dict[tuple[str, int | None], PageResult] = {}
    while not rows:
        rows = job.run(stop_at=chance.randint(1, 12), workers=workers, limit=limit, retry_failed=False)
        read = [(job.documents[name].doc_id, page) for name, page in job.begun]
        assert len(read) == len(set(read)) or any(CRASHES in content.pages for content in contents)
    alone = Job(out.with_name("alone.parquet"), job.documents).run(limit=limit, workers=workers, reads_all=True)
    assert rows.keys() == alone.keys()
    assert status(rows) == status(alone)
    for key, row in rows.items():
        assert (row.doc_id, row.page_count, row.error_kind) == (job.documents[key[0]].doc_id, *metadata(alone[key]))


def metadata(row: PageResult) -> tuple[int | None, str | None]:
    return row.page_count, row.error_kind
