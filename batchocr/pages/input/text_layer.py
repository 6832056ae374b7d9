"""The text that a PDF's page has of its own, visible or, as behind a scan, not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pymupdf
from pymupdf import mupdf

from batchocr.data import NO_LETTERS, LettersRun, PlacedWord
from batchocr.pages.input.mupdf_warnings import REFUSALS

_MAX_LETTERS = 100_000
"""A page with more has no words: a dense newspaper page has 25,000 letters. They are counted before they become words,
as two million words take 600 MB."""

_STRAIGHT: Final = 0.9
"""The least cosine of the angle between a line and one of the four directions in which it may run."""


def text_on(drawn: pymupdf.DisplayList) -> tuple[tuple[PlacedWord, ...], LettersRun]:
    """The words on a page in the file's order, and how its letters run; none if MuPDF cannot extract them. drawn: what
    the page was drawn from, so that it is not interpreted again. Takes 2 ms on average, of a dense page 3."""
    try:
        text = pymupdf.TextPage(drawn.get_textpage(pymupdf.TEXT_MEDIABOX_CLIP))
        if _num_letters(text) > _MAX_LETTERS:
            return (), NO_LETTERS
        found = text.extractWORDS()
        letters_run = _letters_run(text, found)
        x0, y0, x1, y1 = drawn.rect
    except (MemoryError, SystemError, *REFUSALS):  # SystemError: PyMuPDF goes on when Python's memory is at its end
        return (), NO_LETTERS
    width, height = 2 * (x1 - x0), 2 * (y1 - y0)
    words = tuple(
        ((left + right - 2 * x0) / width, (top + bottom - 2 * y0) / height, text)
        for left, top, right, bottom, text, _, _, _ in found
    )
    return words, letters_run


def _letters_run(page: pymupdf.TextPage, words: Iterable[Any]) -> LettersRun:
    """As in Page. words: PyMuPDF's, each with its text and the numbers of its block and line."""
    letters: Counter[tuple[int, int]] = Counter()
    for *_, text, block, line, _ in words:
        letters[block, line] += len(text)
    found = [0, 0, 0, 0]
    for block_number, block in enumerate(page.this):
        for line_number, line in enumerate(block) if block.m_internal.type == mupdf.FZ_STEXT_BLOCK_TEXT else ():
            if (first := line.m_internal.first_char) and not first.argb >> 24:
                return NO_LETTERS
            x, y = line.m_internal.dir.x, line.m_internal.dir.y
            if line.m_internal.wmode:  # set from top to bottom, letters upright
                x, y = y, -x
            for turns, along in enumerate((x, y, -x, -y)):
                found[turns] += letters[block_number, line_number] * (along > _STRAIGHT)
    return found[0], found[1], found[2], found[3]


def _num_letters(page: pymupdf.TextPage) -> int:
    """How many letters a page has, without white space. They are counted in MuPDF's own list: PyMuPDF's `extractText`
    takes ten times as long."""
    buffer = mupdf.fz_new_buffer_from_stext_page(page.this)
    text: str = mupdf.fz_buffer_extract_copy(buffer).decode("utf-8", "replace")
    return len(text) - text.count(" ") - text.count("\n")
