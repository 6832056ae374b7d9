"""Invisible text for the pages of a PDF. Nothing of a page is removed, but the invisible letters of an earlier OCR when
it has no others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import Final

import numpy as np
import pymupdf
from numpy.typing import NDArray

from batchocr.data import Additions, OutlineEntry
from batchocr.pages.input.mupdf_warnings import REFUSALS
from batchocr.pages.input.page_pixels import MAX_EDGE
from batchocr.pages.input.pdf_objects import inherited_text, reference, value_text
from batchocr.pages.searchable.font import ASCENT, DESCENT, GlyphlessFont, add_stream
from batchocr.pages.searchable.letters import advance, drawn, drawn_order
from batchocr.pages.searchable.placed_text import Box, PageText, PlacedLine

_INVISIBLE: Final = 3
_PAINTED: Final = 16 | 32 | 64
"""MuPDF's flags of letters that are filled, stroked or clipped to: not those of render mode 3."""

_STRING: Final = rb"(?:\((?:[^()\\]|\\.|\((?:[^()\\]|\\.)*+\))*+\)|<[\da-fA-F\s]*+>)"
_TEXT: Final = re.compile(
    rb"(?P<shown>(?:(?<![-+.\d])[-+.\d]++\s++[-+.\d]++\s++)?%b\s*\"|%b\s*(?:Tj|')|\[(?:[^][()<]|%b)*+\]\s*TJ)"
    rb"|%b|%%[^\r\n]*" % (4 * (_STRING,)),
    re.DOTALL,
)
"""What shows text in a content stream; and other strings and comments, which may look like it. Source: PDF 1.7,
sections 7.3.4 and 9.4.3."""

_LEAST_STRETCH: Final = 0.5
"""The least share of their width to which letters are narrowed; beyond that they are made lower: MuPDF takes two of the
same for one in bold."""

_REPLACED: Final = 0.8
"""The least share of its letters that our text has if it replaces an earlier OCR's."""


@dataclass(slots=True)
class TextWriter:
    """Adds text to the pages of an open PDF."""

    document: pymupdf.Document
    additions: Additions
    num_hidden_lines: int = 0
    """Lines left out because the page has invisible letters of its own there."""
    _font: GlyphlessFont = field(default_factory=GlyphlessFont)
    _font_number: int = 0
    _seen: set[int] = field(default_factory=set)

    def write(self, pages: Iterable[PageText]) -> Iterator[None]:
        """Add the text of the pages; yields after each. A page that the document has twice is given text once."""
        for text in pages:
            if text.blocks and text.page_index < self.document.page_count:
                self._write_page(self.document.load_page(text.page_index), text)
            yield
        if self._font_number:
            self._font.write_into(self.document, self._font_number)
        catalog = self.document.pdf_catalog()
        if self.additions.language and value_text(self.document, catalog, "Lang") == "null":
            self.document.xref_set_key(catalog, "Lang", f"({self.additions.language})")
        if self.additions.outline and value_text(self.document, catalog, "Outlines/First") == "null":
            self._write_outline(self.additions.outline)

    def _write_outline(self, entries: Iterable[OutlineEntry]) -> None:
        """Add the entries of the outline: the first of level 1, and none more than one level deeper than the one
        before."""
        known = [entry for entry in entries if entry.page_index < self.document.page_count]
        levels = [*accumulate(known, lambda level, entry: min(entry.level, level + 1), initial=0)][1:]
        pairs = zip(levels, known, strict=True)
        self.document.set_toc([[level, entry.title, entry.page_index + 1] for level, entry in pairs])
        for number, entry in zip(self.document.get_outline_xrefs(), known, strict=True):
            page = self.document.load_page(entry.page_index)
            to = pymupdf.Point(0, (entry.y or 0) * page.rect.height) * _to_own_units(page)
            self.document.xref_set_key(number, "A/D", f"[{page.xref} 0 R/XYZ {to.x:g} {to.y:g} null]")

    def _write_page(self, page: pymupdf.Page, text: PageText) -> None:
        if page.xref in self._seen or not _is_as_read(page, text):
            return
        self._seen.add(page.xref)
        lines = [(block.angle, line) for block in text.blocks for line in block.lines]
        num_ours = sum(len(word.text) for _, line in lines for word in line.words)
        streams = [number for number in page.get_contents() if number]
        letters = np.empty((0, 3)) if self.additions.force_text else _own_letters(page)
        is_earlier_ocr = text.is_ok and 0 < len(letters) * _REPLACED <= num_ours and letters[:, 2].all()
        if is_earlier_ocr and (content := _without_letters(page)) is not None:
            streams, letters = [add_stream(self.document, content)], letters[:0]
        of_lines = [_within(line.box, letters) for _, line in lines]
        self.num_hidden_lines += sum(len(found) > 0 and bool(found[:, 2].all()) for found in of_lines)
        lines = [line for line, found in zip(lines, of_lines, strict=True) if not len(found)]
        if lines:
            self._add_lines(page, lines, streams)

    def _add_lines(self, page: pymupdf.Page, lines: Sequence[tuple[int, PlacedLine]], streams: list[int]) -> None:
        """Add lines, each with its angle, to a page of these content streams."""
        self._font_number = self._font_number or self.document.get_new_xref()
        taken = {font[4] for font in page.get_fonts() if font[0] != self._font_number}
        name = next(name for number in count() if (name := f"Glyphless{number}") not in taken)
        units = _to_own_units(page)
        parts = [operators for angle, line in lines for operators in self._line(line, angle, page.rect, units, name)]
        # Ours is the first, where no state of the others changes what it means.
        numbers = [add_stream(self.document, "\n".join(["q BT 3 Tr", *parts, "ET Q\n"]).encode()), *streams]
        self.document.xref_set_key(page.xref, "Contents", f"[{' '.join(f'{number} 0 R' for number in numbers)}]")
        self._add_font(page, name)

    def _line(self, line: PlacedLine, angle: int, page: pymupdf.Rect, own: pymupdf.Matrix, font: str) -> Iterator[str]:
        """Yield the operators that show each word of a line. own: from the page as it is shown to its own units."""
        words = [line.words[index] for index in drawn_order([word.text for word in line.words])]
        turn = pymupdf.Matrix(angle)
        for word in words:
            x0, y0, x1, y1 = word.box
            box = pymupdf.Rect(x0 * page.width, y0 * page.height, x1 * page.width, y1 * page.height) * ~turn
            ems = max(1, sum(map(advance, word.text))) / 1000
            size = max(0.1, min(box.height / (ASCENT + DESCENT), box.width / ems / _LEAST_STRETCH))
            baseline = (box.y0 + box.y1) / 2 + (ASCENT - DESCENT) / 2 * size
            place = pymupdf.Matrix(1, 0, 0, -1, box.x0, baseline) * turn * own
            numbers = " ".join(f"{number:.4f}".rstrip("0").rstrip(".") for number in place)
            codes = self._font.encoded(drawn(word.text) + (" " if word is not words[-1] else ""))
            yield f"/{font} {size:.2f} Tf {100 * box.width / ems / size:.1f} Tz {numbers} Tm<{codes}>Tj"

    def _add_font(self, page: pymupdf.Page, name: str) -> None:
        """Give the page our font under this name."""
        document = self.document
        if value_text(document, page.xref, "Resources") == "null":
            inherited = inherited_text(document, page.xref, "Resources")
            document.xref_set_key(page.xref, "Resources", "<<>>" if inherited == "null" else inherited)
        number = reference(value_text(document, page.xref, "Resources"))
        holder, key = (page.xref, "Resources/Font") if number is None else (number, "Font")
        number = reference(value_text(document, holder, key))
        holder, key = (holder, f"{key}/") if number is None else (number, "")
        document.xref_set_key(holder, f"{key}{name}", f"{self._font_number} 0 R")


def _is_as_read(page: pymupdf.Page, text: PageText) -> bool:
    """Whether the page has the shape of the picture that was read, as it has not if its boxes exclude each other."""
    width, height = page.rect.width, page.rect.height
    return bool(abs(width * (text.height or 0) - height * (text.width or 0)) <= width + height)


def _to_own_units(page: pymupdf.Page) -> pymupdf.Matrix:
    """The matrix from the page as it is shown, in points from its top left, to its own units: the inverse of what MuPDF
    draws it with. PyMuPDF's matrices are different for a turned page whose box does not begin at 0, 0."""
    matrix = pymupdf.mupdf.FzMatrix()
    pymupdf.mupdf.pdf_page_transform(pymupdf.mupdf.pdf_page_from_fz_page(page.this), pymupdf.mupdf.FzRect(), matrix)
    return ~pymupdf.Matrix(matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f)


def _own_letters(page: pymupdf.Page) -> NDArray[np.float64]:
    """The letters of a page's content, which annotations and fields are not: [letters, 3]. x and y of the middle, as
    shares of the page as it is shown, and 1 for those that are invisible."""
    drawn = page.get_displaylist(annots=False)
    x0, y0, x1, y1 = drawn.rect
    letters = [
        ((left + right) / 2, (top + bottom) / 2, not span["char_flags"] & _PAINTED)
        for block in pymupdf.TextPage(drawn.get_textpage()).extractRAWDICT()["blocks"]
        for line in block["lines"]
        for span in line["spans"]
        for left, top, right, bottom in (letter["bbox"] for letter in span["chars"] if letter["c"].strip())
    ]
    return np.asarray((np.array(letters, float).reshape(-1, 3) - (x0, y0, 0)) / (x1 - x0, y1 - y0, 1))


def _within(box: Box, letters: NDArray[np.float64]) -> NDArray[np.float64]:
    x, y, _ = letters.T
    return np.asarray(letters[(box[0] <= x) & (x <= box[2]) & (box[1] <= y) & (y <= box[3])])


def _without_letters(page: pymupdf.Page) -> bytes | None:
    """The content of a page whose letters are all invisible, without them; None if it would look different, or some
    would be left, as those of a form. Tried on a copy without annotations."""
    content = _TEXT.sub(lambda found: b" " if found["shown"] else found[0], page.read_contents())
    with suppress(*REFUSALS), pymupdf.open() as copy:
        number = page.number
        copy.insert_pdf(page.parent, from_page=number, to_page=number, links=False, annots=False, widgets=False)
        are_all_invisible = all(span["type"] == _INVISIBLE for span in copy[0].get_texttrace())  # in layers, too
        before = _look_of(copy[0])
        copy.xref_set_key(copy[0].xref, "Contents", f"{add_stream(copy, content)} 0 R")
        if are_all_invisible and _look_of(copy[0]) == before and not copy[0].get_texttrace():
            return content
    return None


def _look_of(page: pymupdf.Page) -> bytes:
    """The page's pixels at 150 dpi, or at less if it is large."""
    scale = min(150 / 72, MAX_EDGE / max(page.rect.width, page.rect.height))
    return bytes(page.get_pixmap(matrix=pymupdf.Matrix(scale, scale)).samples)
