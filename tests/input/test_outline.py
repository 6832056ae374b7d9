"""The outline of a PDF: its entries, their levels, and where they lead."""

from __future__ import annotations

import pymupdf
import pytest

from batchocr.data import OutlineEntry
from batchocr.input.outline import read_outline
from tests.support.pdf_files import pdf

DESTINATIONS = {
    "direct": b"/Dest [3 0 R /XYZ 20 300 0]",
    "named": b"/Dest (there)",
    "an action": b"/A <</S /GoTo /D (there)>>",
}


def book(destination: bytes) -> pymupdf.Document:
    """One page of 200 × 400 pt, and an outline of one entry, which leads to 300 pt above the foot of the page."""
    data = pdf(
        b"<</Type /Catalog /Pages 2 0 R /Outlines 4 0 R /Names <</Dests <</Names [(there) [3 0 R /XYZ 20 300 0]]>>>>>>",
        b"<</Type /Pages /Kids [3 0 R] /Count 1>>",
        b"<</Type /Page /Parent 2 0 R /MediaBox [0 0 200 400]>>",
        b"<</Type /Outlines /First 5 0 R /Last 5 0 R /Count 1>>",
        b"<</Title (One) /Parent 4 0 R %s>>" % destination,
    )
    return pymupdf.open("pdf", data)


@pytest.mark.parametrize("destination", DESTINATIONS.values(), ids=DESTINATIONS)
def test_however_an_entry_names_its_place_it_is_measured_from_the_top(destination: bytes) -> None:
    with book(destination) as document:
        assert read_outline(document) == [OutlineEntry(1, "One", 0, 0.25)]


def test_an_entry_may_lead_to_a_page_only() -> None:
    with book(b"/Dest [3 0 R /Fit]") as document:
        assert read_outline(document) == [OutlineEntry(1, "One", 0)]


def test_levels_are_those_of_the_tree_and_what_leads_nowhere_is_left_out() -> None:
    with pymupdf.open() as document:
        for _ in range(3):
            document.new_page()
        document.set_toc(
            [[1, "1", 1], [2, "1.1", 1], [3, "1.1.1", 2], [3, "gone", -1], [2, "1.2", 2], [1, "2", 3], [2, "2.1", 3]]
        )
        entries = [(entry.level, entry.title, entry.page_index) for entry in read_outline(document)]
    assert entries == [(1, "1", 0), (2, "1.1", 0), (3, "1.1.1", 1), (2, "1.2", 1), (1, "2", 2), (2, "2.1", 2)]
