"""The text that a PDF's page has of its own, visible or hidden, as behind a scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

import pymupdf
from pymupdf import mupdf

from batchocr.data import NO_LETTERS, LettersRun, PlacedWord
from batchocr.pages.input.mupdf_warnings import REFUSALS

_MAX_LETTERS = 100_000
"""The most letters of a page whose words are taken: a dense newspaper page has 25,000. They are counted before they
become words, as two million words take 600 MB."""

_IMAGES_TOO: Final = pymupdf.TEXT_MEDIABOX_CLIP | pymupdf.TEXT_PRESERVE_IMAGES
_MOST_IMAGES: Final = 0.5
"""The share of a page that images may cover if its letters are to say how it stands: with more, they may be stamped on
a scan, or lie under it."""
_STRAIGHT: Final = 0.9
"""The least cosine of the angle between a line and one of the four directions in which it may run."""


def text_on(drawn: pymupdf.DisplayList) -> tuple[tuple[PlacedWord, ...], LettersRun]:
    """The words on a page in the file's order, those drawn twice once, and how its letters run; none if MuPDF cannot
    extract them. drawn: what the page was drawn from, so that it is not interpreted again. Takes 2 ms on average, of a
    dense page 3."""
    found, letters_run, in_images = _extracted(drawn, _words_and_run, _IMAGES_TOO) or ((), NO_LETTERS, 0.0)
    x0, y0, x1, y1 = drawn.rect
    letters_run = letters_run if in_images < _MOST_IMAGES * (x1 - x0) * (y1 - y0) else NO_LETTERS
    width, height = 2 * (x1 - x0), 2 * (y1 - y0)
    words = tuple(
        ((left + right - 2 * x0) / width, (top + bottom - 2 * y0) / height, text)
        for left, top, right, bottom, text, *_ in _drawn_once(found)
    )
    return words, letters_run


def font_size(drawn: pymupdf.DisplayList) -> float | None:
    """The usual size of the page's letters, in points; None if it has none."""
    page = _extracted(drawn, pymupdf.TextPage.extractDICT) or {"blocks": ()}
    spans = [span for block in page["blocks"] for line in block.get("lines", ()) for span in line["spans"]]
    sizes = [span["size"] for span in spans for _ in span["text"].replace(" ", "")]
    return median(sizes) if sizes else None


def _extracted(
    drawn: pymupdf.DisplayList, extract: Callable[[pymupdf.TextPage], Any], flags: int = pymupdf.TEXT_MEDIABOX_CLIP
) -> Any:
    """What is extracted of a page's text; None if there is too much of it, or MuPDF fails."""
    try:
        text = pymupdf.TextPage(drawn.get_textpage(flags))
        return extract(text) if _num_letters(text) <= _MAX_LETTERS else None
    except (MemoryError, SystemError, *REFUSALS):  # SystemError: PyMuPDF goes on when Python's memory is at its end
        return None


def _words_and_run(page: pymupdf.TextPage) -> tuple[Sequence[Any], LettersRun, float]:
    """MuPDF's words, how the letters run, and how many square points are images."""
    words = page.extractWORDS()
    letters: Counter[tuple[int, int]] = Counter()
    for *_, text, block, line, _ in words:
        letters[block, line] += len(text)
    found = [0, 0, 0, 0]
    for block_number, block in enumerate(page.this):
        for line_number, line in enumerate(block) if block.m_internal.type == mupdf.FZ_STEXT_BLOCK_TEXT else ():
            if (first := line.m_internal.first_char) and not first.argb >> 24:
                return words, NO_LETTERS, 0.0
            x, y = line.m_internal.dir.x, line.m_internal.dir.y
            if line.m_internal.wmode:  # set from top to bottom, letters upright
                x, y = y, -x
            for turns, along in enumerate((x, y, -x, -y)):
                found[turns] += letters[block_number, line_number] * (along > _STRAIGHT)
    images = [block.m_internal.bbox for block in page.this if block.m_internal.type == mupdf.FZ_STEXT_BLOCK_IMAGE]
    in_images = sum((box.x1 - box.x0) * (box.y1 - box.y0) for box in images)
    return words, (found[0], found[1], found[2], found[3]), in_images


def _drawn_once(words: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
    """The words of MuPDF's list but for words that stand where an equal word does, which makes letters bold, or gives
    them a shadow."""
    kept, places = list[tuple[Any, ...]](), set[tuple[str, int, int]]()
    for word in words:
        left, top, right, bottom, text, *_ = word
        side = max(1.0, min(right - left, bottom - top) / 4)
        column, row = int(left / side), int(top / side)
        if places.isdisjoint((text, column + x, row + y) for x in (-1, 0, 1) for y in (-1, 0, 1)):
            kept.append(word)
            places.add((text, column, row))
    return kept


def _num_letters(page: pymupdf.TextPage) -> int:
    """How many letters a page has, without white space. They are counted in MuPDF's own list: PyMuPDF's `extractText`
    takes ten times as long."""
    buffer = mupdf.fz_new_buffer_from_stext_page(page.this)
    text: str = mupdf.fz_buffer_extract_copy(buffer).decode("utf-8", "replace")
    return len(text) - text.count(" ") - text.count("\n")
