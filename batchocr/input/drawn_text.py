"""The glyphs of a page's plain text, and a picture of nothing but these.

MuPDF draws what it calls text; here it draws into a device that sees each glyph on its way to a second picture. Left
out are glyphs that are turned, slanted, mirrored, squeezed or tiny, and those of fonts whose glyphs are drawings (Type
3) or mathematics: on the page they are ink that no glyph accounts for. Whether a glyph can be seen on the page is for
others to find out, by comparing the two pictures. What the file says beside (ActualText, the order of the text) plays
no part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pymupdf
from PIL import Image
from pymupdf import mupdf

from batchocr.data import Glyph, TextLayer
from batchocr.input.mupdf_warnings import REFUSALS

_MAX_GLYPHS: Final = 30_000
"""More is no page that anybody reads, and would take long: a dense page of a newspaper has 25,000."""

_LEAST_PX: Final = 12.0
"""Font sizes below this, 4.3 points at 200 dpi, have strokes that are hardly there."""

_MOST_SLANT: Final = 0.01
_MOST_SQUEEZE: Final = 1.6
_SQUEEZE_STEPS: Final = 20

_NO_INK: Final = 1e-3
"""MuPDF's width of an outline that has none, in ems, and more."""

_MATHEMATICS: Final = re.compile(
    r"math|symbol|dingbat|CM(MI|SY|EX|BSY)|MS[AB]M|EU[FRS][MB]|RSFS|MT-?Extra|LASY|STMARY|WASY|txsy|pxsy|rtxmi|rpxmi",
    re.IGNORECASE,
)
"""Names of fonts whose letters are symbols, for which the model would write LaTeX."""

_UNKNOWN: Final = "\ufffd"


def draw_text(drawn: pymupdf.DisplayList, scale: float) -> TextLayer | None:
    """Return the page's plain text; None if there is none, too much of it, or MuPDF fails.

    drawn: what the page was drawn from, with `scale` px for each of its points. Takes about 20 ms.
    """
    matrix = mupdf.FzMatrix(scale, 0, 0, scale, 0, 0)
    try:
        box = mupdf.fz_round_rect(mupdf.fz_transform_rect(mupdf.fz_bound_display_list(drawn.this), matrix))
        pixmap = mupdf.fz_new_pixmap_with_bbox(mupdf.fz_device_gray(), box, mupdf.FzSeparations(), 0)
        mupdf.fz_clear_pixmap_with_value(pixmap, 0)
        picture = mupdf.fz_new_draw_device(mupdf.FzMatrix(), pixmap)
        device = _TextDevice(picture, box.x0, box.y0)
        mupdf.fz_run_display_list(drawn.this, device, matrix, mupdf.FzRect(box), mupdf.FzCookie())
        mupdf.fz_close_device(device)
        mupdf.fz_close_device(picture)
        if device.failed or not device.glyphs:
            return None
        size = (mupdf.fz_pixmap_width(pixmap), mupdf.fz_pixmap_height(pixmap))
        ink = Image.frombytes("L", size, bytes(mupdf.fz_pixmap_samples_memoryview(pixmap)))
    except (MemoryError, SystemError, *REFUSALS):
        return None
    return TextLayer(tuple(device.glyphs), ink)


class _TextDevice(mupdf.FzDevice2):  # type: ignore[misc]  # PyMuPDF has no types
    """Draws plain text, white on black, and notes its glyphs. left, top: of the picture."""

    def __init__(self, picture: Any, left: int, top: int) -> None:
        super().__init__()
        self.use_virtual_fill_text()
        self.glyphs: list[Glyph] = []
        self.failed = False
        self._picture = picture
        self._left, self._top = left, top
        self._grey, self._color_params = mupdf.fz_device_gray(), mupdf.FzColorParams()
        self._fonts: dict[int, _Font] = {}
        self._shapes: dict[tuple[int, int, str, int], int] = {}

    def fill_text(self, _ctx: Any, text: Any, ctm: Any, *_color: Any) -> None:
        """Called by MuPDF. What this raised would get lost there."""
        if self.failed:
            return
        try:
            self._take(text, mupdf.FzMatrix(ctm))
        except Exception:  # noqa: BLE001 (nothing is known of the page's text then, and nothing is used)
            self.failed = True

    def _take(self, text: Any, ctm: Any) -> None:
        """Note the plain glyphs, and draw them."""
        spans = list(_spans(text))
        plain = [span for span in spans if self._is_plain(span, ctm)]
        for span in plain:
            self._note(span, ctm)
        if len(self.glyphs) > _MAX_GLYPHS:
            raise ValueError("too many glyphs")
        drawn = mupdf.FzText(mupdf.ll_fz_keep_text(text)) if len(plain) == len(spans) else _text_of(plain)
        mupdf.fz_fill_text(self._picture, drawn, ctm, self._grey, (1.0,), 1.0, self._color_params)

    def _is_plain(self, span: Any, ctm: Any) -> bool:
        if span.wmode or not self._font(span).is_plain:
            return False
        placed = mupdf.fz_concat(mupdf.FzMatrix(span.trm), ctm)
        across, down = placed.a, -placed.d
        return bool(
            min(across, down) >= _LEAST_PX
            and max(abs(placed.b), abs(placed.c)) <= _MOST_SLANT * min(across, down)
            and max(across, down) <= _MOST_SQUEEZE * min(across, down)
        )

    def _note(self, span: Any, ctm: Any) -> None:
        """Note the glyphs of a plain span: those with ink, and spaces."""
        font, wrapped = self._font(span), mupdf.FzTextSpan(span)
        placed = mupdf.fz_concat(mupdf.FzMatrix(span.trm), ctm)
        across, down = placed.a, placed.d
        squeezed = round(_SQUEEZE_STEPS * across / -down)  # an O, squeezed, is a 0
        items = [wrapped.items(index) for index in range(span.len)]
        codes = [(item.gid, item.ucs) for item in items]
        for index, item in enumerate(items):
            gid = item.gid
            if gid < 0:
                continue
            said, (x0, y0, x1, y1) = _said(codes, index), font.ink_of(gid)
            has_ink, is_space = min(x1 - x0, y1 - y0) > _NO_INK, not said.strip()
            if not has_ink and not is_space:
                continue  # what it says is nowhere to be seen
            said = _UNKNOWN if has_ink and is_space else said
            x = item.x * ctm.a + item.y * ctm.c + ctm.e - self._left
            y = item.x * ctm.b + item.y * ctm.d + ctm.f - self._top
            shape = self._shapes.setdefault((font.number, gid, said, squeezed), len(self._shapes))
            box = (x + x0 * across, y + y1 * down, x + x1 * across, y + y0 * down)
            self.glyphs.append(Glyph(said, font.number, shape, x, y, font.advance_of(gid) * across, -down, box))

    def _font(self, span: Any) -> _Font:
        # While the list of what is drawn is there, so are its fonts, each at its own place in memory.
        address = int(span.font.this)
        if address not in self._fonts:
            self._fonts[address] = _Font(span.font, len(self._fonts))
        return self._fonts[address]


class _Font:
    """What is asked again and again of a font. Sizes in ems."""

    def __init__(self, font: Any, number: int) -> None:
        name = mupdf.ll_fz_font_name(font)
        self.number = number
        self.is_plain = mupdf.ll_fz_font_t3_procs(font) is None and not _MATHEMATICS.search(name)
        self._font = font
        self._upright = mupdf.ll_fz_make_matrix(1, 0, 0, 1, 0, 0)
        self._ink: dict[int, tuple[float, float, float, float]] = {}
        self._advances: dict[int, float] = {}

    def ink_of(self, gid: int) -> tuple[float, float, float, float]:
        """x0, y0, x1, y1 around a glyph's outline, y upwards."""
        if gid not in self._ink:
            box = mupdf.ll_fz_bound_glyph(self._font, gid, self._upright)
            self._ink[gid] = (box.x0, box.y0, box.x1, box.y1)
        return self._ink[gid]

    def advance_of(self, gid: int) -> float:
        if gid not in self._advances:
            self._advances[gid] = mupdf.ll_fz_advance_glyph(self._font, gid, 0)
        return self._advances[gid]


def _spans(text: Any) -> Iterator[Any]:
    span = text.head
    while span:
        yield span
        span = span.next


def _text_of(spans: Sequence[Any]) -> Any:
    """A text of these spans alone."""
    text = mupdf.fz_new_text()
    for span in spans:
        font, trm, wrapped = mupdf.FzFont(mupdf.ll_fz_keep_font(span.font)), span.trm, mupdf.FzTextSpan(span)
        for item in (wrapped.items(index) for index in range(span.len)):
            placed = mupdf.FzMatrix(trm.a, trm.b, trm.c, trm.d, item.x, item.y)
            mupdf.fz_show_glyph(text, font, placed, item.gid, item.ucs, 0, 0, mupdf.FZ_BIDI_LTR, mupdf.FZ_LANG_UNSET)
    return text


def _said(codes: Sequence[tuple[int, int]], index: int) -> str:
    """What the file says a glyph is: the letters behind it that have no glyph of their own belong to it."""
    end = index + 1
    while end < len(codes) and codes[end][0] < 0:
        end += 1
    if end == index + 1:
        return chr(codes[index][1]) if codes[index][1] > 0 else _UNKNOWN
    return "".join(chr(code) if code > 0 else _UNKNOWN for _, code in codes[index:end])
