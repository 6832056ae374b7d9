"""Pictures and PDFs that an export has made of documents are not taken for documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchocr.errors import NoInputError
from batchocr.pages.input.folders import EXPORT_RECORD
from batchocr.pages.input.sources import find_documents
from tests.support.listing import make, sources

HASH = "0123456789abcdef" * 4
CUTS = (
    *("a.images/page-1-block-9.png", "a.images/page-12-block-0-2.png", "b.pdf.html.images/page-1-block-0.png"),
    *("sub/c.docling.images/page-1-block-0.png", f"sub/c/images/{HASH}.jpg", "a.searchable.pdf"),
)
DOCUMENTS = (
    *("a.images/scan.png", "a.images/page-1.png", "a.images/page-1-block-9.jpg", "sub/c/images/photo.jpg"),
    *(f"sub/{HASH}.jpg", "page-1-block-9.png", "images.pdf", "myimages/page-1-block-9.png"),
)


@pytest.fixture(autouse=True)
def cuts_and_documents(folder: Path) -> None:
    """A folder `in` with documents among what an export has written."""
    make(*(f"in/{name}" for name in (EXPORT_RECORD, "a.md", *CUTS, *DOCUMENTS)), "other/x.pdf")


@pytest.mark.parametrize("given", ["in", ".", "in/**", "**/*.png", "in/**/*.jpg", "i*/*/*", "in/a.images", "in/sub/c"])
def test_only_documents_are_found_in_a_folder_and_by_a_glob(given: str) -> None:
    found = {Path(document.path).resolve() for document in find_documents([given]).documents}
    assert found & {Path("in", name).resolve() for name in DOCUMENTS}
    assert not found & {Path("in", name).resolve() for name in CUTS}


def test_what_is_reached_through_a_link_is_known_by_where_it_lies() -> None:
    Path("linked").symlink_to("in/a.images")
    for given in ("linked", "linked/*"):
        assert "linked/page-1-block-9.png" not in {document.path for document in find_documents([given]).documents}


def test_they_are_counted_among_the_files_that_were_skipped() -> None:
    assert find_documents(["in"]).skipped == {"cut by an export": 6, ".md": 1}
    assert find_documents(["in/**/*.png"]).skipped == {"cut by an export": 4}
    assert find_documents(["in", "in/**/*.png", "."]).skipped == {"cut by an export": 6, ".md": 1}


def test_where_there_is_nothing_else_the_error_says_so() -> None:
    Path("in/a.images/scan.png").unlink()
    with pytest.raises(NoInputError, match="skipped 1 file: 1 cut by an export"):
        find_documents(["in/a.images/*block-9.png"])


def test_one_that_is_named_is_read() -> None:
    assert sources("in/a.images/page-1-block-9.png") == ["in/a.images/page-1-block-9.png"]


def test_without_the_record_of_an_export_they_are_documents_like_others() -> None:
    Path("in", EXPORT_RECORD).unlink()
    assert len(sources("in")) == len(CUTS) + len(DOCUMENTS)
    assert len(sources("in/**/*.*")) == len(CUTS) + len(DOCUMENTS) + 1
