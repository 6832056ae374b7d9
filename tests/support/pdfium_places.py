"""Where PDFium, the engine of Chromium's viewer, has what an export has put on a page."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pypdfium2 as pdfium

_SIDE = 100_000
_OURS = b"Glyphless"


def place_in_pdfium(page: pdfium.PdfPage, x: float, y: float) -> tuple[float, float]:
    """A point of the page's own space, as shares of the page as PDFium shows it."""
    across, down = ctypes.c_int(), ctypes.c_int()
    pdfium.raw.FPDF_PageToDevice(page, 0, 0, _SIDE, _SIDE, 0, x, y, across, down)
    return across.value / _SIDE, down.value / _SIDE


def places_in_pdfium(page: pdfium.PdfPage) -> Iterator[tuple[float, float]]:
    """The middles of the letters in our font, likewise."""
    text, name, flags = page.get_textpage(), ctypes.create_string_buffer(64), ctypes.c_int()
    for index in range(text.count_chars()):
        pdfium.raw.FPDFText_GetFontInfo(text, index, name, 64, flags)
        if name.value == _OURS and text.get_text_range(index, 1).strip():
            left, bottom, right, top = text.get_charbox(index, loose=True)
            yield place_in_pdfium(page, (left + right) / 2, (bottom + top) / 2)
