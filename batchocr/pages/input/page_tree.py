"""How many pages a PDF has. Its page tree can claim more pages than there are, and fewer."""

from __future__ import annotations

from bisect import bisect_left

import pymupdf
from pymupdf import mupdf

from batchocr.errors import DamagedError
from batchocr.pages.input.mupdf_warnings import REFUSALS, all_warnings, lost_content
from batchocr.pages.input.pdf_objects import array_references, object_text, references, value_text

_MAX_MISSING_PAGES = 100
"""How many of the pages that a document claims beyond its last real one are tried."""

_FEWEST_BYTES_PER_PAGE = 3
"""The fewest bytes of a file for each page that it plausibly has: a compressed blank page takes 7; but a file of 4 KB
can use one page millions of times."""

_STEPS_PER_OBJECT = 3
"""How often each object may occur in a page tree on average; in a sound one it is once."""


def count_pages(document: pymupdf.Document, num_bytes: int) -> tuple[int, int]:
    """How many pages the document claims, and how many of its first ones are worth a try.

    A small file can claim hundreds of thousands. A `/Count` lower than the number of pages in the tree is corrected in
    memory, because MuPDF reads no page beyond it. num_bytes: size of the file.
    """
    if value_text(document, _root(document), "Count").startswith("-"):  # of which MuPDF reads no page
        document.xref_set_key(_root(document), "Count", "0")
    claimed = int(document.page_count)
    if not _has_page(document, 0):  # this has MuPDF read the tree
        _make_objects(document)
    if not document.page_count or "Page tree load failed" in all_warnings():
        if (num_pages := _count_leaves(document)) > document.page_count:
            document.xref_set_key(_root(document), "Count", str(num_pages))
        claimed = max(claimed, int(document.page_count))
    plausible = min(_count_present(document, claimed), num_bytes // _FEWEST_BYTES_PER_PAGE)
    return claimed, min(claimed, plausible + _MAX_MISSING_PAGES)


def require_meant_to_be_empty(document: pymupdf.Document) -> None:
    """Raise DamagedError unless the page tree of a document without pages is sound, and empty."""
    lost = lost_content(all_warnings())
    if lost is not None or document.is_repaired or _kids(document, _root(document)) != []:
        raise DamagedError(f"no page is left of the document{f': {lost}' if lost else ''}")


def _count_present(document: pymupdf.Document, claimed: int) -> int:
    """How many pages there are, if that is much less than claimed: then all those that exist come first."""
    if claimed <= _MAX_MISSING_PAGES or _has_page(document, claimed - 1):
        return claimed
    return bisect_left(range(claimed), True, key=lambda index: not _has_page(document, index))


def _has_page(document: pymupdf.Document, page_index: int) -> bool:
    try:
        return bool(document.page_xref(page_index))
    except REFUSALS:
        return False


def _make_objects(document: pymupdf.Document) -> None:
    """Make objects of the pages that are written within the root of the tree, in place of references to them."""
    pdf = mupdf.pdf_document_from_fz_document(document.this)
    kids = mupdf.pdf_dict_getp(mupdf.pdf_trailer(pdf), "Root/Pages/Kids")
    for index in range(mupdf.pdf_array_len(kids)):
        kid = mupdf.pdf_array_get(kids, index)
        if mupdf.pdf_is_dict(kid) and not mupdf.pdf_is_indirect(kid):
            mupdf.pdf_array_put(kids, index, mupdf.pdf_add_object(pdf, kid))


def _count_leaves(document: pymupdf.Document) -> int:
    """How many pages the tree names that exist; a tree that contains itself is not followed for ever. In place of the
    tree there may be the only page."""
    num_leaves, num_steps = int(value_text(document, _root(document), "Type") == "/Page"), 0
    most_steps = _STEPS_PER_OBJECT * int(document.xref_length())
    waiting = [_root(document)]
    while waiting and num_steps < most_steps:
        for kid in _kids(document, waiting.pop()) or ():
            num_steps += 1
            if _kids(document, kid) is not None:
                waiting.append(kid)
            elif object_text(document, kid).startswith("<<"):
                num_leaves += 1
    return num_leaves


def _root(document: pymupdf.Document) -> int:
    """The number of the page tree's root; 0 if there is none."""
    return next(iter(references(value_text(document, document.pdf_catalog(), "Pages"))), 0)


def _kids(document: pymupdf.Document, node: int) -> list[int] | None:
    """The numbers of what is below a node of the page tree; None if it is no node."""
    return array_references(document, node, "Kids")
