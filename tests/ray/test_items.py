"""How an input is divided into items, and when an earlier division stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from batchocr.config import Config
from batchocr.data import Document, Failure
from batchocr.job.survey.look import count_pages
from batchocr.ray.items import (
    ClusterPlan,
    Item,
    PlannedDocument,
    divide,
    look_at_file,
    newest_documents,
    unchanged_items,
)
from tests.support.running import draw_pdf


def planned(source: str, page_count: int | None, *, size: int = 10) -> PlannedDocument:
    return PlannedDocument(source, size, 1, page_count, path=f"/in/{source}")


def items(*documents: PlannedDocument, pages: str | None = None, per_item: int = 10) -> list[Item]:
    return list(divide(documents, pages, per_item, first=0))


def held(found: list[Item]) -> list[tuple[list[str], str | None]]:
    return [([document.source for document in item.documents], item.pages) for item in found]


def test_a_long_document_is_divided_evenly_and_short_ones_are_grouped() -> None:
    found = items(planned("a", 4), planned("b", 5), planned("book", 21), planned("c", 2), planned("d", 8))
    assert held(found) == [
        (["a", "b"], None),
        (["book"], "1-7"),
        (["book"], "8-14"),
        (["book"], "15-21"),
        (["c", "d"], None),
    ]
    assert [item.num_rows for item in found] == [9, 7, 7, 7, 10]


def test_parts_in_the_order_of_their_names_are_in_input_order() -> None:
    found = items(*(planned(f"{number}", 10) for number in range(12)))
    assert sorted(found, key=lambda item: item.name) == found


def test_only_the_pages_asked_for_are_divided() -> None:
    assert held(items(planned("book", 100), pages="1-3,r2-r1", per_item=4)) == [
        (["book"], "1-2"),
        (["book"], "3,99-100"),
    ]
    assert held(items(planned("short", 2), planned("long", 9), pages="5-9", per_item=10)) == [(["long"], "5-9")]


def test_a_document_that_cannot_be_counted_takes_one_row() -> None:
    [item] = items(planned("odd", None))
    assert item.num_rows == 1
    assert [row.page_index for row in item.failed_rows(Failure("crashed", "it went"), attempts=1)] == [None]


def test_the_newest_documents_are_those_since_the_last_run_that_ended_well() -> None:
    old, changed, new = planned("old", 4), planned("changed", 4), planned("new", 4)
    before, now = items(old, changed), items(old, planned("changed", 4, size=11), new)
    assert newest_documents(before, None) is None
    assert newest_documents(now, ClusterPlan("", None, None, tuple(before))) is None, "no run has ended well"
    for left, newest in ((set(), {"changed", "new"}), ({"old"}, {"changed", "new", "old"})):
        assert newest_documents(now, ClusterPlan("", None, None, tuple(before), frozenset(left))) == newest


def test_a_name_changes_with_what_the_item_holds() -> None:
    [one], [other] = items(planned("a", 3)), items(planned("a", 3, size=11))
    assert one.name == items(planned("a", 3))[0].name
    assert one.name != other.name
    assert one.name != replace(one, pages="1").name


def test_an_item_stands_while_all_of_its_files_are_as_they_were() -> None:
    both, book = items(planned("a", 4), planned("b", 4), planned("c", 9))
    now = {source: replace(planned(source, None), path=f"/elsewhere/{source}") for source in ("a", "b", "c", "new")}
    assert [item.name for item in unchanged_items([both, book], now)] == [both.name, book.name]
    assert unchanged_items([both], now)[0].documents[1].path == "/elsewhere/b"
    assert unchanged_items([both, book], now | {"b": planned("b", None, size=11)})[0].name == book.name
    del now["c"]
    assert [item.name for item in unchanged_items([both, book], now)] == [both.name]


def test_a_file_that_is_touched_is_not_the_same(tmp_path: Path) -> None:
    path = draw_pdf(tmp_path / "a.pdf", "one")
    before = look_at_file(Document(str(path), "a.pdf"))
    assert replace(before, page_count=1).is_same(look_at_file(Document(str(path), "a.pdf")))
    path.write_bytes(path.read_bytes() + b"\n")
    assert not before.is_same(look_at_file(Document(str(path), "a.pdf")))


def test_pages_are_counted_and_what_cannot_be_opened_has_none(tmp_path: Path) -> None:
    draw_pdf(tmp_path / "two.pdf", "one", "two")
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 nothing")
    names = ["two.pdf", "broken.pdf", "absent.pdf"]
    documents = [Document(str(tmp_path / name), name) for name in names]
    assert dict(count_pages(documents, Config(), workers=2)) == {0: 2, 1: None, 2: None}


def test_an_object_of_a_store_is_known_by_its_listing_and_not_looked_for_on_disk() -> None:
    document = Document("s3://bucket/a.pdf", "a.pdf", size=5, mtime_ns=7)
    planned = look_at_file(document)
    assert planned == PlannedDocument("a.pdf", 5, 7, path="s3://bucket/a.pdf")
    assert planned.document == document
    assert not planned.is_same(look_at_file(Document("s3://bucket/a.pdf", "a.pdf", size=5, mtime_ns=8)))


@pytest.mark.parametrize(
    ("rows", "fits"),
    [
        ([("a", 1), ("a", 2), ("b", None), ("c", 7)], True),
        ([("a", None), ("b", 2)], True),
        ([("a", 1), ("b", 1), ("d", 0)], False),
        ([("a", 0), ("b", 1)], False),
        ([("a", 1), ("c", 0)], False),
        ([], False),
    ],
    ids=["its own", "a document as a whole", "another document", "another page", "a document less", "nothing"],
)
def test_a_part_holds_rows_of_all_documents_that_were_counted_and_no_others(
    rows: list[tuple[str, int | None]], fits: bool
) -> None:
    documents = planned("a", 3), planned("b", 3), planned("c", None)
    assert Item(0, "2-3", 5, documents).is_held_by(rows) == fits
