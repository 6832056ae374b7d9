"""The text that a PDF's page has of its own, visible or, as behind a scan, not."""

from __future__ import annotations

import pymupdf
from pymupdf import mupdf

from batchocr.data import PlacedWord
from batchocr.pages.input.mupdf_warnings import REFUSALS

_MAX_LETTERS = 100_000
"""A page with more has no words: a dense newspaper page has 25,000 letters. They are counted before they become words,
as two million words take 600 MB."""


def words_on(drawn: pymupdf.DisplayList) -> tuple[PlacedWord, ...]:
    """The words on a page in the file's order; none if MuPDF cannot extract them. drawn: what the page was drawn from,
    so that it is not interpreted again. Takes 1.2 ms on average."""
    try:
        text = pymupdf.TextPage(drawn.get_textpage(pymupdf.TEXT_MEDIABOX_CLIP))
        if _num_letters(text) > _MAX_LETTERS:
            return ()
        found = text.extractWORDS()
        x0, y0, x1, y1 = drawn.rect
    except (MemoryError, SystemError, *REFUSALS):  # SystemError: PyMuPDF goes on when Python's memory is at its end
        return ()
    width, height = 2 * (x1 - x0), 2 * (y1 - y0)
    return tuple(
        ((left + right - 2 * x0) / width, (top + bottom - 2 * y0) / height, text)
        for left, top, right, bottom, text, _, _, _ in found
    )


def _num_letters(page: pymupdf.TextPage) -> int:
    """How many letters a page has, without white space. They are counted in MuPDF's own list: PyMuPDF's `extractText`
    takes ten times as long."""
    buffer = mupdf.fz_new_buffer_from_stext_page(page.this)
    text: str = mupdf.fz_buffer_extract_copy(buffer).decode("utf-8", "replace")
    return len(text) - text.count(" ") - text.count("\n")
