"""The outline of a PDF, which viewers show beside the pages."""

from __future__ import annotations

from collections.abc import Iterator

import pymupdf

from batchocr.data import OutlineEntry, letters_end
from batchocr.pages.input.pdf_objects import reference, value_text

_MAX_ENTRIES = 20_000
_MAX_DEPTH = 100
_MAX_TITLE = 1000


class PdfFile(pymupdf.Document):  # type: ignore[misc]  # PyMuPDF has no types
    """A PDF as PyMuPDF opens it, but without its outline: MuPDF loads that by recursion, and 100,000 entries within one
    another end the process."""

    def _loadOutline(self) -> pymupdf.Outline | None:
        # What is no PDF has to be asked: MuPDF reads it only now, and looking for its title ended the process.
        return None if self.is_pdf else super()._loadOutline()


def read_outline(document: pymupdf.Document) -> list[OutlineEntry]:
    """The entries that lead to a page, in order, of the first 20,000; those more than 100 levels deep are left out.
    Raises what MuPDF raises."""
    if not document.pdf_catalog():  # is no object of its own: it cannot be cut
        return []
    _cut(document)
    loaded = pymupdf.mupdf.fz_load_outline(document.this)
    return [
        OutlineEntry(level, _title(item), item.page, _share_of_page(document, item))
        for level, item in _walk(pymupdf.Outline(loaded) if loaded.m_internal else None)
        if 0 <= item.page < document.page_count and not item.is_external
    ]


def _title(item: pymupdf.Outline) -> str:
    title = " ".join((item.title or "").split())
    return title[: letters_end(title, _MAX_TITLE)]


def _cut(document: pymupdf.Document) -> None:
    """Remove, in memory, what MuPDF shall not load of the outline: what goes too far or too deep, or in circles."""
    catalogue = document.pdf_catalog()
    root = reference(value_text(document, catalogue, "Outlines"))
    waiting = [(catalogue, "Outlines/First", 1) if root is None else (root, "First", 1)]
    seen: set[int] = set()
    while waiting:
        number, key, depth = waiting.pop()
        value = value_text(document, number, key)
        if value == "null":
            continue
        entry = reference(value)
        if entry is None or entry in seen or len(seen) == _MAX_ENTRIES or depth > _MAX_DEPTH:
            document.xref_set_key(number, key, "null")
            continue
        seen.add(entry)
        waiting += [(entry, "Next", depth), (entry, "First", depth + 1)]


def _walk(item: pymupdf.Outline | None, level: int = 1) -> Iterator[tuple[int, pymupdf.Outline]]:
    """Yield the item and each entry after it with its level: first its own entries, then the next one.

    Not from `get_toc`: it has the points that named destinations lead to upside down.
    """
    while item is not None:
        yield level, item
        yield from _walk(item.down, level + 1)
        item = item.next


def _share_of_page(document: pymupdf.Document, item: pymupdf.Outline) -> float | None:
    """How far down the page as it is shown the entry leads, from 0 to 1; None if to no point on the page."""
    if not item.y >= 0:  # or NaN
        return None
    height = document[item.page].rect.height
    return item.y / height if height and item.y <= height else None
