"""Documents as columns: each comes out as it went in, whatever was left out or put between them."""

from __future__ import annotations

import pytest

from batchocr.data import Document, Failure
from batchocr.storage import listing
from batchocr.storage.listing import Documents, repeated

HELD = object()
ALL = (
    Document("in/a.pdf", "a.pdf"),
    Document("gone.pdf", "gone.pdf", Failure("not_found", "gone.pdf does not exist")),
    Document("s3://bucket/b.ZIP", "b.zip", size=5, mtime_ns=-1),
    Document("odd\udce9\ud800.pdf", "odd\\udce9\\ud800.pdf"),
    Document("/proc/1/fd/5", "memory", held=HELD),
    Document("/c.tar\0005\0x.pdf", "c.tar/x.pdf", pages=frozenset({1, 3}), size=0, mtime_ns=1 << 62),
    Document("", ""),
)


@pytest.fixture(params=[1, 3, 100], autouse=True)
def _batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_AT_ONCE", request.param)


def test_documents_come_out_as_they_went_in() -> None:
    documents = Documents(iter(ALL))
    assert len(documents) == len(ALL)
    assert [*documents] == [*ALL] == [documents[index] for index in range(len(ALL))]
    assert documents[-2] == ALL[-2]
    assert documents[4].held is HELD
    with pytest.raises(IndexError):
        documents[len(ALL)]
    assert [*documents.names()] == documents.sources.to_pylist() == [document.source for document in ALL]
    assert [*documents.paths()] == [document.path for document in ALL]


def test_none_is_a_listing_too() -> None:
    documents = Documents()
    assert not documents
    assert [*documents, *documents.where([])] == []
    assert repeated(documents.names()) == []


def test_a_source_that_is_not_text_is_escaped() -> None:
    assert Documents([Document("x", "odd\udce9")])[0].source == "odd\\udce9"


def test_what_is_left_out_takes_nothing_along() -> None:
    documents = Documents(ALL)
    assert [*documents.where(index % 2 == 0 for index in range(len(ALL)))] == [*ALL[::2]]
    assert [*documents] == [*ALL]


def test_documents_are_added_behind_those_that_are_left() -> None:
    documents = Documents(ALL).where(document.problem is not None for document in ALL)
    documents.extend(Documents(ALL[4:]))
    assert [*documents] == [ALL[1], *ALL[4:]]


def test_a_folder_stands_before_relative_paths_alone() -> None:
    paths = ["/d/in/a.pdf", "/d/gone.pdf", "s3://bucket/b.ZIP", "/d/odd\udce9\ud800.pdf", "/proc/1/fd/5"]
    documents = Documents(ALL[:5])
    below = documents.below("/d/")
    assert [*below.paths()] == [document.path for document in below] == paths
    assert below[3].path == paths[3]
    assert [*documents] == [*ALL[:5]]


def test_all_texts_that_occur_again_are_named() -> None:
    assert repeated(["a", "b", "a", "c", "b", "a"]) == [0, 1, 2, 4, 5]
    assert repeated([1, 1 << 60]) == []
