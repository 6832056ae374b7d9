"""The glyphs that a page draws, where their ink is, and which of them nothing is drawn over.

MuPDF hands each thing that it draws to a device; this one notes glyphs, and does not draw. Text that is never painted
(render mode 3) is not among them. Whether a glyph can be seen is for others to find out, from the page's pixels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pymupdf
from pymupdf import mupdf

from batchocr.data import NOT_PLAIN, Box, Glyph
from batchocr.pages.input.mupdf_warnings import REFUSALS

_MOST_GLYPHS, _MOST_OBJECTS = 30_000, 20_000
"""The most glyphs, and the most objects, of a page that is looked at: a page with more would take long. A dense page of
a newspaper has 25,000 letters."""

_MATHEMATICS: Final = re.compile(
    r"math|symbol|dingbat|CM(MI|SY|EX|BSY)|MS[AB]M|EU[FRS][MB]|RSFS|MT-?Extra|LASY|STMARY|WASY|txsy|pxsy|rtxmi|rpxmi",
    re.IGNORECASE,
)
"""Names of fonts whose letters are symbols, for which the model would write LaTeX."""

_NO_INK: Final = 1e-3
"""The width of an outline, in em, up to which it has no ink: a little more than MuPDF has for none."""
_MOST_SLANT: Final = 0.01
_THIN_PX: Final = 4.0
"""The thickness, in px, below which what is drawn, such as a line under a word, hides no letter."""
_HIDDEN: Final = 0.2
"""How much of a glyph's box may lie behind something that is drawn later, or on or behind an image, before the glyph
counts as hidden."""


def plain_glyphs(drawn: pymupdf.DisplayList, scale: float) -> tuple[Glyph, ...]:
    """The glyphs in the order in which they are drawn; glyphs that are not plain say U+FFFD. No glyphs of a page with
    too many objects, or if MuPDF fails. drawn: what the page was drawn from, with `scale` px for each of its points."""
    matrix = mupdf.FzMatrix(scale, 0, 0, scale, 0, 0)
    try:
        page = mupdf.fz_round_rect(mupdf.fz_transform_rect(mupdf.fz_bound_display_list(drawn.this), matrix))
        device = _GlyphDevice(page.x0, page.y0)
        mupdf.fz_run_display_list(drawn.this, device, matrix, mupdf.FzRect(page), mupdf.FzCookie())
        mupdf.fz_close_device(device)
    except (MemoryError, SystemError, *REFUSALS):
        return ()
    return _without_hidden(device.glyphs, device.covers) if device.glyphs and not device.is_full else ()


def _without_hidden(glyphs: list[Glyph], covers: list[tuple[int, Box]]) -> tuple[Glyph, ...]:
    """The glyphs, of which those that are covered are not plain. covers: boxes, each with the number of glyphs, from
    the first on, that it hides."""
    x0, y0, x1, y1 = np.array([glyph.box for glyph in glyphs]).T
    hidden = np.zeros(len(glyphs), dtype=bool)
    for count, (left, top, right, bottom) in covers:
        across = (np.minimum(x1, right) - np.maximum(x0, left)).clip(0)
        down = (np.minimum(y1, bottom) - np.maximum(y0, top)).clip(0)
        hidden[:count] |= (across * down > _HIDDEN * (x1 - x0) * (y1 - y0))[:count]
    pairs = zip(glyphs, hidden, strict=True)
    return tuple(replace(glyph, text=NOT_PLAIN) if is_hidden else glyph for glyph, is_hidden in pairs)


class _GlyphDevice(mupdf.FzDevice2):  # type: ignore[misc]  # PyMuPDF has no types
    """Notes what is drawn on a page."""

    def __init__(self, left: int, top: int) -> None:
        """left, top: where the page's picture begins."""
        super().__init__()
        for name in ("fill_text", "fill_path", "stroke_path", "fill_shade", "fill_image", "fill_image_mask"):
            getattr(self, f"use_virtual_{name}")()
        self.glyphs: list[Glyph] = []
        self.covers: list[tuple[int, Box]] = []
        self._left, self._top, self._num_objects = left, top, 0
        self._fonts: dict[int, _Font] = {}

    @property
    def is_full(self) -> bool:
        """Whether so much is drawn that nothing more is noted."""
        return self._num_objects > _MOST_OBJECTS or len(self.glyphs) > _MOST_GLYPHS

    def fill_text(self, _ctx: Any, text: Any, ctm: Any, *_color: Any) -> None:
        self._num_objects += 1
        span = text.head
        while span and not self.is_full:
            self._note(span, ctm)
            span = span.next

    def fill_path(self, _ctx: Any, path: Any, _even_odd: Any, ctm: Any, *_color: Any) -> None:
        self._cover(mupdf.ll_fz_bound_path(path, None, ctm), len(self.glyphs))

    def stroke_path(self, _ctx: Any, path: Any, stroke: Any, ctm: Any, *_color: Any) -> None:
        if stroke.linewidth * abs(ctm.a * ctm.d - ctm.b * ctm.c) ** 0.5 > _THIN_PX:
            self._cover(mupdf.ll_fz_bound_path(path, stroke, ctm), len(self.glyphs))

    def fill_shade(self, _ctx: Any, shade: Any, ctm: Any, *_color: Any) -> None:
        self._cover(mupdf.ll_fz_bound_shade(shade, ctm), _MOST_GLYPHS)

    def fill_image(self, _ctx: Any, _image: Any, ctm: Any, *_color: Any) -> None:
        self._cover(mupdf.ll_fz_transform_rect(mupdf.ll_fz_make_rect(0, 0, 1, 1), ctm), _MOST_GLYPHS)

    fill_image_mask = fill_image

    def _cover(self, box: Any, num_hidden: int) -> None:
        self._num_objects += 1
        if min(box.x1 - box.x0, box.y1 - box.y0) > _THIN_PX and not self.is_full:
            left, top = self._left, self._top
            self.covers.append((num_hidden, (box.x0 - left, box.y0 - top, box.x1 - left, box.y1 - top)))

    def _note(self, span: Any, ctm: Any) -> None:
        """Note the glyphs of a span with ink, and spaces."""
        # While the list of what is drawn is there, so are its fonts, each at its own place in memory.
        if (font := self._fonts.get(address := int(span.font.this))) is None:
            font = self._fonts[address] = _Font(span.font, len(self._fonts))
        placed = mupdf.ll_fz_concat(span.trm, ctm)
        across, down = placed.a, -placed.d
        is_straight = max(abs(placed.b), abs(placed.c)) <= _MOST_SLANT * min(across, down)
        is_letter = font.is_plain and is_straight and not span.wmode
        a, b, c, d, left, top = ctm.a, ctm.b, ctm.c, ctm.d, ctm.e - self._left, ctm.f - self._top
        for text, gid, item in _said(span):
            u, v = item.x, item.y
            x, y = u * a + v * c + left, u * b + v * d + top
            advance, (x0, y0, x1, y1) = font.shape_of(gid)
            has_ink = min(x1 - x0, y1 - y0) > _NO_INK
            box = (x + x0 * across, y - y1 * down, x + x1 * across, y - y0 * down) if has_ink else (x, y, x, y)
            is_plain = is_letter and has_ink == bool(text.strip())
            self.glyphs.append(
                Glyph(text if is_plain else NOT_PLAIN, x, y, advance * across, abs(down), box, font.number)
            )


class _Font:
    """What is asked again and again of a font. Glyphs of Type 3 fonts are drawings."""

    def __init__(self, font: Any, number: int) -> None:
        is_drawing = mupdf.ll_fz_font_t3_procs(font) is not None
        self.is_plain = not is_drawing and not _MATHEMATICS.search(mupdf.ll_fz_font_name(font))
        self._font, self.number = font, number
        self._shapes: dict[int, tuple[float, Box]] = {}

    def shape_of(self, gid: int) -> tuple[float, Box]:
        """A glyph's advance, and x0, y0, x1, y1 around its outline, y upwards; in ems."""
        if gid not in self._shapes:
            box = mupdf.ll_fz_bound_glyph(self._font, gid, mupdf.ll_fz_make_matrix(1, 0, 0, 1, 0, 0))
            self._shapes[gid] = mupdf.ll_fz_advance_glyph(self._font, gid, 0), (box.x0, box.y0, box.x1, box.y1)
        return self._shapes[gid]


def _said(span: Any) -> Iterator[tuple[str, int, Any]]:
    """What each glyph of a span says, its number in the font, and its place. Letters without a glyph belong to the one
    before them."""
    wrapped = mupdf.FzTextSpan(span)
    items = [wrapped.items(index) for index in range(span.len)]
    starts = [index for index, item in enumerate(items) if item.gid >= 0]
    for start, end in zip(starts, [*starts[1:], len(items)], strict=True):
        codes = [item.ucs for item in items[start:end]]
        yield "".join(chr(code) if code > 0 else NOT_PLAIN for code in codes), items[start].gid, items[start]
