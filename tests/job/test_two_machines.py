"""Two machines write one table in a store: neither undoes what the other has done, whenever one of them is killed."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import batchocr
from batchocr.errors import OutputError
from tests.support.jobs import FULL
from tests.support.nights import (
    ANEW,
    BUCKET,
    FIRST_MERGE,
    FIRST_RUN,
    FORMS,
    MERGE,
    NAMES,
    NIGHT,
    PRUNING,
    Archive,
    Machine,
    Night,
    Order,
    spread,
)
from tests.support.object_store import ObjectStore, first, used

pytestmark = pytest.mark.slow

FILE, LINES, FOLDER = FORMS[len(NAMES) :]
NUM_REQUESTS = 1000 if FULL else 1
"""At how many requests of a command something happens, of those that change an object."""
READING = ("GET", "HEAD")
MOST_READS = 1000 if FULL else 3
"""At how many requests of a reader a table is put."""
ALL = pytest.mark.parametrize(
    ("form", "order"),
    [
        (FILE, NIGHT),
        pytest.param(FOLDER, FIRST_RUN, marks=pytest.mark.long),
        pytest.param(LINES, NIGHT, marks=pytest.mark.long),
        pytest.param(FOLDER, NIGHT, marks=pytest.mark.long),
        pytest.param(FILE, FIRST_RUN, marks=pytest.mark.long),
    ],
    ids=str,
)
SEEN = "j.png"
"""What only the other machine has seen."""


@pytest.fixture(scope="module")
def shared(running: ObjectStore) -> Iterator[ObjectStore]:
    with used(running) as store:
        yield store


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, model: Path, shared: ObjectStore) -> Iterator[Archive]:
    yield Archive(tmp_path_factory.mktemp("archive"), model, shared)
    for key in shared.keys(BUCKET):
        shared.delete(BUCKET, key)


@pytest.fixture(autouse=True)
def _same_store(shared: ObjectStore) -> None:
    """For every test here, it is the one that holds the archive's tables."""


def sources(night: Night) -> list[str]:
    """Of each row, as it stands in the table now."""
    found = night.rows()
    assert isinstance(found, list), found
    return [row.source for row in found]


@pytest.mark.parametrize(
    ("form", "order"),
    [
        pytest.param(FILE, PRUNING, marks=pytest.mark.long),
        pytest.param(LINES, PRUNING, marks=pytest.mark.long),
        (FOLDER, PRUNING),
        pytest.param(LINES, MERGE, marks=pytest.mark.long),
        pytest.param(FOLDER, MERGE, marks=pytest.mark.long),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_done", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_kill_at_any_request_loses_and_hides_nothing_and_another_machine_goes_on(
    archive: Archive, form: str, order: Order, is_done: bool
) -> None:
    for request in spread(NUM_REQUESTS, archive.night(form, order).expected.num_requests):
        night = archive.night(form, order)
        with night.machine("one") as one, night.machine("another") as another:
            assert night.run(one, request=request, is_done=is_done).is_killed
            assert not [*night.check_ours(), *night.check_theirs()], request
            night.run(another)
        assert not [*night.check_end(is_third=False), *night.check_theirs()], request


def run_with_one_more(night: Night, machine: Machine, documents: Path) -> None:
    """Run the command while there is a document that is gone afterwards; the table keeps its row."""
    (documents / SEEN).write_bytes(b"no image either")
    night.run(machine)
    (documents / SEEN).unlink()
    assert sources(night).count(SEEN) == 1


@ALL
def test_a_machine_that_was_killed_does_not_undo_what_another_has_done_since(
    archive: Archive, form: str, order: Order
) -> None:
    for request in spread(NUM_REQUESTS, archive.night(form, order).expected.num_requests):
        night = archive.night(form, order)
        with night.machine("one") as one, night.machine("another") as another:
            assert night.run(one, request=request).is_killed
            run_with_one_more(night, another, archive.documents)
            expected = night.rows()
            night.run(one)
        assert night.rows() == expected, request


@ALL
def test_a_run_that_is_overtaken_by_another_machine_does_not_undo_what_that_has_done(
    archive: Archive, form: str, order: Order
) -> None:
    """The other machine runs while the first one waits for an answer."""
    for request in spread(NUM_REQUESTS, archive.night(form, order).expected.num_requests):
        night = archive.night(form, order)
        with night.machine("one") as one, night.machine("another") as another:
            overtaking = partial(run_with_one_more, night, another, archive.documents)
            with one.when_it_comes_to(request, lambda overtake=overtaking: overtake() is None):  # type: ignore[misc]
                overtaken = night.start(one).ended()
            assert overtaken.code in (0, 3, 75), overtaken.said
            again = night.run(one)
        assert again.code == 0 or overtaken.code == 3, again.said
        found = sources(night)
        assert sorted(found) == sorted([SEEN, *(row.source for row in night.expected.after)]), request
        assert not list(night.check_theirs()), request


@pytest.mark.long
@pytest.mark.parametrize("form", [FILE, FOLDER])
def test_a_run_whose_table_is_replaced_as_soon_as_it_is_committed_ends_as_if_it_were_not(
    archive: Archive, shared: ObjectStore, form: str
) -> None:
    night = archive.night(form, NIGHT)

    def overwrite(*_: object) -> None:
        night.order = ANEW
        night.run(another)
        night.order = NIGHT

    with night.machine("one") as one, night.machine("another") as another:
        with shared.failing(first(1, overwrite, method="PUT", ending=".parquet")):  # as the first part is copied
            assert night.run(one).code == night.expected.end.code
        assert "nothing to do" in night.run(one).said
    assert not list(night.check_theirs())


def test_a_run_that_finds_another_at_work_says_whose_it_is_and_since_when(archive: Archive) -> None:
    night = archive.night(FOLDER, NIGHT)
    with night.machine("one") as one, night.machine("another") as another:
        assert night.run(one, request=night.expected.num_requests // 2).is_killed
        said = night.run(another).said
    [line] = [line for line in said.splitlines() if socket.gethostname() in line]
    assert re.search(r"at \d{4}-\d\d-\d\dT\d\d:\d\d", line)
    assert said.index(line) < said.index("came out worse")


@pytest.mark.long
def test_what_came_out_worse_is_said_once_though_the_runs_that_were_to_say_it_were_killed(archive: Archive) -> None:
    night = archive.night(FOLDER, NIGHT)
    with night.machine("one") as one, night.machine("another") as another, night.machine("third") as third:
        assert night.run(one, request=night.expected.num_requests - 3).is_killed  # the table is there, no report of it
        assert night.run(another, request=4).is_killed
        said = [night.run(machine).said.count("came out worse") for machine in (third, one, another)]
    assert said == [1, 0, 0]


def test_what_came_out_worse_in_a_table_that_is_overwritten_is_none_of_the_new_one(archive: Archive) -> None:
    night = archive.night(FOLDER, NIGHT)
    with night.machine("one") as one, night.machine("another") as another:
        assert night.run(one, request=night.expected.num_requests - 3).is_killed
        night.order = ANEW
        end = night.run(another)
    assert (end.code, "worse" in end.said) == (0, False)


@pytest.mark.parametrize("form", [FILE, pytest.param(LINES, marks=pytest.mark.long), FOLDER])
def test_a_reader_that_is_at_work_while_a_table_is_replaced_sees_one_version_of_it_or_is_told(
    archive: Archive, form: str
) -> None:
    night = archive.night(form, NIGHT)
    rows = batchocr.open_table(night.out).rows()
    before = [row.doc_id for row in batchocr.open_table(night.out).rows()]
    seen = [next(rows).doc_id]
    with night.machine("one") as one:
        night.run(one)
    try:
        seen += [row.doc_id for row in rows]
    except OutputError as error:
        assert "again" in str(error)
    assert seen == before[: len(seen)]


@pytest.mark.parametrize(
    ("form", "order"),
    [
        (FOLDER, FIRST_MERGE),
        pytest.param(FOLDER, MERGE, marks=pytest.mark.long),
        pytest.param(FOLDER, NIGHT, marks=pytest.mark.long),
        pytest.param(FILE, MERGE, marks=pytest.mark.long),
        pytest.param(LINES, MERGE, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_between_which_requests_of_a_reader_a_table_is_put_it_sees_one_version_or_is_told(
    archive: Archive, form: str, order: Order
) -> None:
    for request in range(1, MOST_READS + 1):
        night = archive.night(form, order)
        with night.machine("one") as one, night.machine("test", READING) as reader:
            put = partial(night.run, one)
            with reader.when_it_comes_to(request, lambda put=put: put().code != 1):  # type: ignore[misc]
                found = night.rows()
        if reader.num_requests < request:
            break
        if isinstance(found, str):
            assert "again" in found or night.expected.before is None, found
        else:
            assert found in (night.expected.before, night.expected.after), request
