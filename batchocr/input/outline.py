"""The outline of a PDF, which viewers show beside the pages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pymupdf

from batchocr.data import OutlineEntry

_MAX_ENTRIES = 20_000
_MAX_TITLE = 1000


def read_outline(document: pymupdf.Document) -> list[OutlineEntry]:
    """The entries that lead to a page, in order; the first 20,000 if there are more. Raises what MuPDF raises."""
    return [
        OutlineEntry(
            level, " ".join((item.title or "").split())[:_MAX_TITLE], item.page, _share_of_page(document, item)
        )
        for level, item in islice(_walk(document.outline), _MAX_ENTRIES)
        if 0 <= item.page < document.page_count and not item.is_external
    ]


def _walk(item: pymupdf.Outline | None) -> Iterator[tuple[int, pymupdf.Outline]]:
    """Yield each entry with its level: its own entries after it, then the next one.

    Not from `get_toc`: it has the points that named destinations lead to upside down.
    """
    unfinished: list[pymupdf.Outline] = []
    while item is not None or unfinished:
        if item is None:
            item = unfinished.pop().next
            continue
        yield len(unfinished) + 1, item
        if item.down is not None:
            unfinished.append(item)
            item = item.down
        else:
            item = item.next


def _share_of_page(document: pymupdf.Document, item: pymupdf.Outline) -> float | None:
    """How far down the page as it is shown the entry leads, from 0 to 1; None if to no point on the page."""
    height = document[item.page].rect.height
    return item.y / height if height and 0 <= item.y <= height else None
