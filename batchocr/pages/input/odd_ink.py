"""Letters of a page that MuPDF leaves blank, and ink that it draws and no viewer shows. It warns of neither."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import Any, Final

import pymupdf
from pymupdf import mupdf

from batchocr.data import counted, valid_text
from batchocr.pages.input.mupdf_warnings import REFUSALS

_MOST_FONTS: Final = 3


def odd_ink(drawn: pymupdf.DisplayList) -> list[str]:
    """What is odd about the ink of a page, in words. drawn: what the page was drawn from. Takes some milliseconds."""
    device = _InkDevice()
    try:
        mupdf.fz_run_display_list(
            drawn.this, device, mupdf.FzMatrix(), mupdf.FzRect(mupdf.fz_infinite_rect), mupdf.FzCookie()
        )
        mupdf.fz_close_device(device)
    except (MemoryError, SystemError, *REFUSALS):
        return []  # it was drawn nonetheless
    found = [
        f"{counted(number, 'letter')} of the font {valid_text(font)} cannot be drawn, as it is not in the file"
        for font, number in (+device.blank).most_common(_MOST_FONTS)
    ]
    return [*found, "there is ink of the colour None, which no viewer shows"] if device.has_none else found


class _InkDevice(mupdf.FzDevice2):  # type: ignore[misc]  # PyMuPDF has no types
    """Notes letters without a glyph, and ink of the colour None."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("fill_text", "stroke_text", "fill_path", "stroke_path"):
            getattr(self, f"use_virtual_{name}")()
        self.blank: Counter[str] = Counter()
        """How many letters are left blank, by the name of their font."""
        self.has_none = False

    def fill_text(self, _ctx: Any, text: Any, *how: Any) -> None:
        self.fill_path(*how)
        span = text.head
        while span:
            if mupdf.ll_fz_font_flags(span.font).ft_substitute:
                items = mupdf.FzTextSpan(span)
                letters = (chr(max(0, item.ucs)) for item in map(items.items, range(span.len)) if item.gid == 0)
                self.blank[mupdf.ll_fz_font_name(span.font)] += sum(map(_is_visible, letters))
            span = span.next

    def fill_path(self, *how: Any) -> None:
        for space in how:
            if isinstance(space, mupdf.fz_colorspace) and mupdf.ll_fz_colorspace_n(space) == 1:
                self.has_none |= mupdf.ll_fz_colorspace_colorant(space, 0) == "None"

    stroke_text, stroke_path = fill_text, fill_path


def _is_visible(letter: str) -> bool:
    """Whether a letter is no space, and no control character; U+FFFD, which may be any letter, is."""
    return unicodedata.category(letter)[0] not in "ZC"
