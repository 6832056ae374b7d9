"""The text that a PDF's page has of its own, visible or, as behind a scan, not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pymupdf
from pymupdf import mupdf

from batchocr.data import PlacedWord
from batchocr.pages.input.mupdf_warnings import REFUSALS

_MAX_LETTERS = 100_000
"""A page with more has no words: a dense newspaper page has 25,000 letters. They are counted before they become words,
as two million words take 600 MB."""


_ENOUGH_LETTERS: Final = 100
_MOST_OF_THEM: Final = 0.9
_STRAIGHT: Final = 0.9
"""The least cosine of the angle between a line and the direction in which it runs."""


@dataclass(frozen=True, slots=True)
class TextLayer:
    """What a page's own text says."""

    words: tuple[PlacedWord, ...] = ()
    """In the file's order."""
    is_upright: bool = False
    """Whether it says that the page stands upright: it has a hundred letters, nine in ten of them run from left to
    right, or down as Chinese ones do, and none are invisible, as those behind a scan are."""


def text_layer_on(drawn: pymupdf.DisplayList) -> TextLayer:
    """The text of a page; none if MuPDF cannot extract it. drawn: what the page was drawn from, so that it is not
    interpreted again. Takes 1.2 ms on average, and 2.8 of a dense page."""
    try:
        text = pymupdf.TextPage(drawn.get_textpage(pymupdf.TEXT_MEDIABOX_CLIP))
        if _num_letters(text) > _MAX_LETTERS:
            return TextLayer()
        found = text.extractWORDS()
        is_upright = _is_upright(text, found)
        x0, y0, x1, y1 = drawn.rect
    except (MemoryError, SystemError, *REFUSALS):  # SystemError: PyMuPDF goes on when Python's memory is at its end
        return TextLayer()
    width, height = 2 * (x1 - x0), 2 * (y1 - y0)
    words = tuple(
        ((left + right - 2 * x0) / width, (top + bottom - 2 * y0) / height, text)
        for left, top, right, bottom, text, _, _, _ in found
    )
    return TextLayer(words, is_upright)


def _is_upright(page: pymupdf.TextPage, words: Iterable[Any]) -> bool:
    """As in TextLayer. words: PyMuPDF's, each with its text and the numbers of its block and line."""
    letters: Counter[tuple[int, int]] = Counter()
    for *_, text, block, line, _ in words:
        letters[block, line] += len(text)
    if letters.total() < _ENOUGH_LETTERS:
        return False
    num_upright = 0
    for block_number, block in enumerate(page.this):
        for line_number, line in enumerate(block) if block.m_internal.type == mupdf.FZ_STEXT_BLOCK_TEXT else ():
            if (first := line.m_internal.first_char) and not first.argb >> 24:
                return False
            along = line.m_internal.dir.y if line.m_internal.wmode else line.m_internal.dir.x
            num_upright += letters[block_number, line_number] * (along > _STRAIGHT)
    return num_upright >= _MOST_OF_THEM * letters.total()


def _num_letters(page: pymupdf.TextPage) -> int:
    """How many letters a page has, without white space. They are counted in MuPDF's own list: PyMuPDF's `extractText`
    takes ten times as long."""
    buffer = mupdf.fz_new_buffer_from_stext_page(page.this)
    text: str = mupdf.fz_buffer_extract_copy(buffer).decode("utf-8", "replace")
    return len(text) - text.count(" ") - text.count("\n")
