"""The outline of a PDF: its entries, their levels, and where they lead."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from batchocr.data import OutlineEntry
from batchocr.pages.input.outline import PdfFile, read_outline
from batchocr.pages.input.render import open_document
from tests.support.pdf_files import pdf

DESTINATIONS = {
    "direct": b"/Dest [3 0 R /XYZ 20 300 0]",
    "named": b"/Dest (there)",
    "an action": b"/A <</S /GoTo /D (there)>>",
}


def book(*entries: bytes) -> pymupdf.Document:
    """One page of 200 × 400 pt, and an outline of entries without title; the first is object 5. What is named `there`
    is 300 pt above the foot of the page."""
    data = pdf(
        b"<</Type /Catalog /Pages 2 0 R /Outlines 4 0 R /Names <</Dests <</Names [(there) [3 0 R /XYZ 20 300 0]]>>>>>>",
        b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
        b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 200 400]>>",
        b"<</Type /Outlines /First 5 0 R /Last 5 0 R /Count 1>>",
        *(b"<</Parent 4 0 R %s>>" % entry for entry in entries),
    )
    return PdfFile("pdf", data)


@pytest.mark.parametrize("destination", DESTINATIONS.values(), ids=DESTINATIONS)
def test_however_an_entry_names_its_place_it_is_measured_from_the_top(destination: bytes) -> None:
    with book(b"/Title (One)" + destination) as document:
        assert read_outline(document) == [OutlineEntry(1, "One", 0, 0.25)]


def test_an_entry_may_lead_to_a_page_only() -> None:
    with book(b"/Title (One) /Dest [3 0 R /Fit]") as document:
        assert read_outline(document) == [OutlineEntry(1, "One", 0)]


@pytest.mark.parametrize("first", [b"", b"/Outlines <<>>", b"/Outlines 9 0 R", b"/Outlines <</First 9 0 R>>"])
def test_a_document_may_have_none(first: bytes) -> None:
    pages = (b"<</Type /Pages /Kids [3 0 R] /Count 1>>", b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 200 400]>>")
    with PdfFile("pdf", pdf(b"<</Type /Catalog /Pages 2 0 R %s>>" % first, *pages)) as document:
        assert read_outline(document) == []


def test_levels_are_those_of_the_tree_and_what_leads_nowhere_is_left_out() -> None:
    with pymupdf.open() as document:
        for _ in range(3):
            document.new_page()
        document.set_toc(
            [[1, "1", 1], [2, "1.1", 1], [3, "1.1.1", 2], [3, "gone", -1], [2, "1.2", 2], [1, "2", 3], [2, "2.1", 3]]
        )
        entries = [(entry.level, entry.title, entry.page_index) for entry in read_outline(document)]
    assert entries == [(1, "1", 0), (2, "1.1", 0), (3, "1.1.1", 1), (2, "1.2", 1), (1, "2", 2), (2, "2.1", 2)]


def test_a_document_whose_outline_is_nested_without_end_is_read_with_the_first_levels(tmp_path: Path) -> None:
    with book(*(b"/Dest [3 0 R /Fit] /First %d 0 R" % number for number in range(6, 120_006))) as nested:
        (tmp_path / "a.pdf").write_bytes(nested.stream)
    document = open_document(str(tmp_path / "a.pdf"), password=None, dpi=72)
    assert document.page_count == 1
    assert [entry.level for entry in document.outline()] == list(range(1, 101))
    document.close()


def test_a_catalogue_that_is_no_object_has_no_outline() -> None:
    with book(*(b"/Dest [3 0 R /Fit] /First %d 0 R" % number for number in range(6, 120_006))) as nested:
        data = nested.stream.replace(b"/Root 1 0 R", b"/Root <</Type /Catalog /Pages 2 0 R /Outlines 4 0 R>>")
    with PdfFile("pdf", data) as document:
        assert (document.page_count, read_outline(document)) == (1, [])


def test_of_too_many_entries_the_first_are_read() -> None:
    with book(*(b"/Dest [3 0 R /Fit] /Next %d 0 R" % number for number in range(6, 20_016))) as document:
        assert len(read_outline(document)) == 20_000


def test_entries_that_lead_in_circles_are_read_once() -> None:
    page, following = b"/Dest [3 0 R /Fit]", b"/Next %d 0 R /First %d 0 R"
    with book(page + following % (6, 5), page + following % (5, 7), page + b"/Next 7 0 R") as document:
        assert [entry.level for entry in read_outline(document)] == [1, 1, 2]
