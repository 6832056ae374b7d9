"""The outline of a PDF, which viewers show beside the pages."""

from __future__ import annotations

from itertools import islice

import pymupdf

from batchocr.data import OutlineEntry

_MAX_ENTRIES = 20_000
_MAX_TITLE = 1000


def read_outline(document: pymupdf.Document) -> list[OutlineEntry]:
    """The entries that lead to a page, in order; the first 20,000 if there are more. Raises what MuPDF raises."""
    entries = []
    for level, title, number, destination in islice(document.get_toc(simple=False), _MAX_ENTRIES):
        if 1 <= number <= document.page_count:
            page = number - 1
            y = _share_of_page(document, page, destination.get("to"))
            entries.append(OutlineEntry(level, " ".join(title.split())[:_MAX_TITLE], page, y))
    return entries


def _share_of_page(document: pymupdf.Document, page: int, to: pymupdf.Point | None) -> float | None:
    """How far down the page as it is shown the point is, from 0 to 1; None if it is not on the page."""
    if to is None:
        return None
    bound = document[page].rect
    point = pymupdf.Point(to) * document[page].rotation_matrix
    return (point.y - bound.y0) / bound.height if bound.height and bound.y0 <= point.y <= bound.y1 else None
