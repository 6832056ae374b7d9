"""What actors have put where a table is made: items, of which nobody knows but the driver and the next run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchocr
from batchocr.config import Config
from batchocr.data import Document, PageResult
from batchocr.errors import OutputError, OutputMismatchError
from batchocr.ray.items import Items
from batchocr.ray.reader import ItemRead, Reader
from batchocr.storage.listing import Documents
from batchocr.tables import parquet
from batchocr.tables import target as target_module
from batchocr.tables.earlier import metadata_of_rows
from batchocr.tables.journal import Journal
from batchocr.tables.opened import open_rows
from batchocr.tables.schema import RunMetadata
from batchocr.tables.target import Target
from tests.support.object_store import ObjectStore, answering, first
from tests.support.running import draw_pdf, read_rows, said_by, texts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _quick(quick_processes: None) -> None:
    """Nearly all tests here start workers or engines."""


@pytest.fixture(scope="module")
def usual(model: Path) -> dict[str, Any]:
    return {"model": model, "max_degraded_rate": 1, "dpi": 72, "workers": 1, "dtype": "float32", "rows_per_part": 4}


@pytest.fixture(scope="module")
def first_day(tmp_path_factory: pytest.TempPathFactory, usual: dict[str, Any]) -> Path:
    """Four documents of two pages, a book of five, and the table of a plain run."""
    place = tmp_path_factory.mktemp("items") / "first"
    (place / "in").mkdir(parents=True)
    for name in ("a", "b", "c", "d"):
        draw_pdf(place / "in" / f"{name}.pdf", f"{name} one", f"{name} two")
    draw_pdf(place / "in" / "book.pdf", *(f"page {page}" for page in range(5)))
    batchocr.run(place / "in", out=place / "plain.parquet", **usual)
    return place


@pytest.fixture
def place(first_day: Path) -> Iterator[Path]:
    """The same in a place that is the test's alone; documents are where they were."""
    place = Path(shutil.copytree(first_day, first_day.with_name("now")))
    yield place
    shutil.rmtree(place)


Read = Callable[..., ItemRead]


@pytest.fixture
def read(place: Path, usual: dict[str, Any]) -> Iterator[Read]:
    """Has an actor read documents of the place, into the folder `out` there unless another place is given."""
    with ExitStack() as ending:

        def read(
            *names: str, out: str = "", generation: int = 1, max_pages: int = 1000, pages: Any = None, **options: Any
        ) -> ItemRead:
            target = Target(out or str(place / "out"), generation)
            if not out:
                (place / "out" / ".batchocr").mkdir(parents=True, exist_ok=True)
                (place / "out" / ".batchocr" / "run.json").touch()
            config = Config(**{"model": str(usual["model"]), "dpi": 72, "workers": 1, "dtype": "float32", **options})
            roots = (str(place / "in"),)
            actor = Reader(config, target, roots, cpus=1, per_node=1, max_pages=max_pages, begun_in=None)
            actor.load()
            assert actor._session is not None
            ending.enter_context(closing(actor._session))
            documents = [Document(str(place / "in" / f"{name}.pdf"), f"{name}.pdf", pages=pages) for name in names]
            return actor.read(documents)

        yield read


def run(place: Path, usual: dict[str, Any], **options: Any) -> batchocr.Report:
    (place / "out").mkdir(exist_ok=True)
    return batchocr.run(place / "in", out=place / "out", **usual | options)


def items_in(place: Path) -> list[Path]:
    return sorted((place / "out" / ".batchocr" / "new").glob("*-item-*"))


def require_plain(place: Path) -> None:
    """The table is, to the row, that of a plain run, and nothing is left of what it was made of."""
    assert texts(open_rows(place / "out", ours=True).rows()) == texts(read_rows(place / "plain.parquet"))
    assert items_in(place) == []


def test_a_run_takes_in_what_actors_have_read_and_reads_the_rest(
    place: Path, usual: dict[str, Any], read: Read
) -> None:
    assert +read("d", "b").rows == {"ok": 4}
    read("book", pages=frozenset({3, 4}))
    read("book", pages=frozenset({0, 1}))
    report = run(place, usual)
    assert (report.pages_read, report.items.already_done, report.items.found) == (5, 8, 13)
    require_plain(place)
    assert run(place, usual).nothing_to_do


def test_what_an_actor_has_read_takes_the_place_of_what_the_table_has(
    place: Path, usual: dict[str, Any], read: Read
) -> None:
    run(place, usual)
    before = {path.name for path in (place / "out").glob("*.parquet")}
    draw_pdf(place / "in" / "b.pdf", "b changed", "b changed", "b three")
    draw_pdf(place / "in" / "ab.pdf", "new")
    read("b", "ab", generation=2)
    report = run(place, usual)
    assert (report.pages_read, report.items.found) == (0, 15)
    assert report.newest is not None and report.newest.ok == 4
    assert before <= {path.name for path in (place / "out").glob("*.parquet")}
    batchocr.run(place / "in", out=place / "plain.parquet", overwrite=True, **usual)
    rows = texts(open_rows(place / "out", ours=True).rows())
    assert sorted(rows, key=by_page) == sorted(texts(read_rows(place / "plain.parquet")), key=by_page)


def by_page(row: PageResult) -> tuple[str, int | None]:
    return row.source, row.page_index


def test_what_was_read_can_be_looked_at_before_a_table_is_made_of_it(
    place: Path, usual: dict[str, Any], read: Read
) -> None:
    stop = batchocr.StopSwitch()
    stop.request()
    read("b")
    run(place, usual, stop=stop)
    assert [row.source for row in open_rows(place / "out", partial=True).rows()] == ["b.pdf", "b.pdf"]


def test_what_is_damaged_is_read_again(
    place: Path, usual: dict[str, Any], read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    read("a")
    read("b")
    damaged, torn = items_in(place)
    content = bytearray(damaged.read_bytes())
    content[-200] ^= 1
    damaged.write_bytes(content)
    torn.write_bytes(torn.read_bytes()[:-9])
    assert run(place, usual).pages_read == 13
    assert sum("is left out: it is damaged" in message for message in caplog.messages) >= 2
    require_plain(place)


def test_what_was_read_with_other_settings_is_not_mixed_in(place: Path, usual: dict[str, Any], read: Read) -> None:
    read("a", max_new_tokens=9)
    with pytest.raises(OutputMismatchError, match="max_new_tokens 9 there"):
        run(place, usual)
    with pytest.raises(OutputMismatchError, match="--no-resume"):
        run(place, usual, max_new_tokens=9, resume=False)
    run(place, usual, overwrite=True)
    require_plain(place)


def test_an_item_that_a_commit_has_taken_in_counts_no_more(place: Path, usual: dict[str, Any], read: Read) -> None:
    read("a")
    [item] = items_in(place)
    shutil.copy(item, place)
    run(place, usual)
    (place / "in" / "a.pdf").unlink()
    run(place, usual, prune=True)
    shutil.copy(place / item.name, item.parent)
    assert run(place, usual).nothing_to_do
    assert {row.source for row in open_rows(place / "out", ours=True).rows()} == {"b.pdf", "c.pdf", "d.pdf", "book.pdf"}


def test_what_actors_read_now_counts_more_than_what_a_stopped_run_has_read(
    place: Path, usual: dict[str, Any], read: Read
) -> None:
    stop = batchocr.StopSwitch()
    run(place, usual, pages_in_flight=1, stop=stop, progress=lambda state: state.read and stop.request())
    draw_pdf(place / "in" / "a.pdf", "newer", "newer two")
    item, metadata = read("a").name, metadata_of_rows(place / "out")
    assert metadata is not None
    with Journal.open(place / "out", metadata, resume=True, overwrite=False) as journal:
        [before] = {row.doc_id for row in journal.known.rows("a.pdf")}
        journal.take_in([item])
        [now] = {row.doc_id for row in journal.known.rows("a.pdf") if row.page_index == 0}
    assert now not in (None, before)
    assert run(place, usual).exit_code == 0
    batchocr.run(place / "in", out=place / "plain.parquet", overwrite=True, **usual)
    require_plain(place)


def test_a_merge_leaves_what_actors_have_read(place: Path, usual: dict[str, Any], read: Read) -> None:
    read("a")
    code, _, said = said_by("merge", place / "plain.parquet", "--out", f"{place}/out/")
    assert (code, len(items_in(place))) == (6, 1)
    assert "has what actors of an unfinished run have read" in said


def test_an_actor_leaves_what_is_more_than_an_item_should_have(place: Path, read: Read) -> None:
    found = read("a", "book", "c", max_pages=4)
    assert +found.rows == {"ok": 4}
    assert [(each.source, each.pages) for each in found.rest] == [("book.pdf", {2, 3, 4}), ("c.pdf", None)]
    assert found.row is not None and (found.row.page_count, found.row.page_index) == (5, 0)
    some = read("a", "b", "c", max_pages=4, pages=frozenset({0, 1}))
    assert ([(each.source, each.pages) for each in some.rest], some.row) == ([("c.pdf", {0, 1})], None)
    whole = read("a", "c", max_pages=4)
    assert (whole.rows.total(), whole.rest) == (4, ())
    assert read("a", pages=frozenset({7})) == ItemRead()


def test_documents_are_grouped_by_their_size_and_pages_divided_evenly() -> None:
    items = Items(10)
    names = ["a.png", "b.PDF", "c.pdf", "d.tif", "e.pdf"]
    documents = Documents([Document(name, name) for name in names])
    sizes = np.array([10**9, 250_000, 900_000, 0, 10**7])
    grouped = items.of(documents, sizes)
    assert [[each.source for each in item.documents] for item in grouped] == [names[:3], names[3:]]
    assert [item.num_pages for item in grouped] == [14, 102]
    assert items.of(Documents(), sizes[:0]) == []
    some = [Document(name, name, pages=pages) for name, pages in (("a", {1}), ("b", set(range(25))), ("c", None))]
    pieces = [*items.of_some(some)]
    numbers = [[(each.source, each.pages and len(each.pages)) for each in item.documents] for item in pieces]
    assert numbers == [[("a", 1), ("b", 8)], [("b", 8)], [("b", 9), ("c", None)]]
    assert len({item.number for item in (*grouped, *pieces, *items.of_each(some))}) == 8


@pytest.fixture
def target(store: ObjectStore) -> Target:
    store.put("pages", {"beside": b""})
    return Target("s3://pages/out/", 1)


def test_a_store_that_is_away_for_a_moment_costs_no_item(
    store: ObjectStore, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_module, "_PUT_AGAIN_S", (0.0, 0.0))
    away, metadata = answering("403 Forbidden", "AccessDenied"), RunMetadata("0", "none", "0", "0", {"dtype": "x"})
    parquet.write(tmp_path / "item.parquet", [PageResult("a.pdf", 0, "ok")], metadata)
    with store.failing(first(2, away, method="POST")):
        assert target.put(tmp_path / "item.parquet").startswith(".batchocr/new/00000001-item-")
    with store.failing(first(3, away, method="POST")), pytest.raises(OutputError, match="access is denied"):
        target.put(tmp_path / "item.parquet")
    with store.failing(first(-1, away, method="POST")), pytest.raises(OutputError, match="access is denied"):
        target.require_writable()
    target.require_writable()
    assert [key for key in store.keys("pages") if "item" not in key] == ["beside"]


def test_a_machine_that_does_not_see_the_place_says_so(target: Target, store: ObjectStore, tmp_path: Path) -> None:
    for unseen in target, Target(str(tmp_path), 1):
        with pytest.raises(OutputError, match=r"run\.json is not in .*: all machines need to see the same folder"):
            unseen.require_seen()
    store.put("pages", {"out/.batchocr/run.json": b""})
    target.require_seen()
