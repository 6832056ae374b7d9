"""Invisible text for the pages of a PDF, which stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pymupdf

from batchocr.data import Additions, OutlineEntry
from batchocr.pages.input.pdf_objects import inherited_text, reference, value_text
from batchocr.pages.searchable.font import ASCENT, DESCENT, GlyphlessFont
from batchocr.pages.searchable.letters import advance, drawn, drawn_order
from batchocr.pages.searchable.placed_text import BlockWords, PageText, PlacedLine

_INVISIBLE: Final = 3
_COMPARED_DPI: Final = 50
_HAS_TEXT: Final = 0.3
"""A block for which the page has this share of its letters, visible, needs no text of ours."""


@dataclass(slots=True)
class TextWriter:
    """Adds text to the pages of an open PDF. num_changed: pages that were given some."""

    document: pymupdf.Document
    additions: Additions
    num_changed: int = 0
    _font: GlyphlessFont = field(default_factory=GlyphlessFont)
    _font_number: int = 0
    _seen: set[int] = field(default_factory=set)

    def write(self, pages: Iterable[PageText]) -> Iterator[None]:
        """Add the text of the pages; yields after each. A page that the document has twice is given text once."""
        for text in pages:
            if text.blocks and text.page_index < self.document.page_count:
                self._write_page(self.document.load_page(text.page_index), text)
            yield
        if self.num_changed:
            self._font.write_into(self.document, self._font_number)
        catalog = self.document.pdf_catalog()
        if self.additions.language and value_text(self.document, catalog, "Lang") == "null":
            self.document.xref_set_key(catalog, "Lang", f"({self.additions.language})")
        if self.additions.outline and not self.document.get_toc():
            self.document.set_toc(_outline(self.additions.outline, self.document))

    def _write_page(self, page: pymupdf.Page, text: PageText) -> None:
        if page.xref in self._seen or not (page.rect.width and page.rect.height):
            return
        self._seen.add(page.xref)
        visible, has_hidden = _own_text(page)
        blocks = [block for block in text.blocks if self.additions.force_text or not _has_own(block, visible)]
        if not blocks or (has_hidden and not _without_hidden_text(page, is_all=not visible)):
            return
        matrix = page.derotation_matrix * ~page.transformation_matrix
        self._font_number = self._font_number or self.document.get_new_xref()
        parts = [
            operators
            for block in blocks
            for line in block.lines
            for operators in self._line(line, block.angle, page.rect, matrix)
        ]
        self._add_contents(page, "\n".join(["q BT 3 Tr", *parts, "ET Q\n"]).encode())
        self.num_changed += 1

    def _line(self, line: PlacedLine, angle: int, page: pymupdf.Rect, matrix: pymupdf.Matrix) -> Iterator[str]:
        """Yield the operators that show each word of a line. matrix: from the page as it is shown to its own units."""
        words = [line.words[index] for index in drawn_order([word.text for word in line.words])]
        for index, word in enumerate(words):
            x0, y0, x1, y1 = word.box
            box = (x0 * page.width, y0 * page.height, x1 * page.width, y1 * page.height)
            length, height = box[2] - box[0], box[3] - box[1]
            if angle in (90, 270):
                length, height = height, length
            size = max(0.1, height / (ASCENT + DESCENT))
            stretch = 100 * length / (max(1, sum(map(advance, word.text))) * size / 1000)
            place = _begin(box, angle) * matrix
            numbers = " ".join(f"{number:.4f}".rstrip("0").rstrip(".") for number in place)
            codes = self._font.encoded(drawn(word.text) + " " * (index < len(words) - 1))
            yield f"/{self._font_name} {size:.2f} Tf {max(1, stretch):.1f} Tz {numbers} Tm<{codes}>Tj"

    def _add_contents(self, page: pymupdf.Page, contents: bytes) -> None:
        """Put the contents before those of the page, where no state of theirs changes what they mean."""
        document = self.document
        stream = document.get_new_xref()
        document.update_object(stream, "<<>>")
        document.update_stream(stream, contents, new=True)
        numbers = [stream, *page.get_contents()]
        document.xref_set_key(page.xref, "Contents", f"[{' '.join(f'{number} 0 R' for number in numbers)}]")
        if value_text(document, page.xref, "Resources") == "null":
            inherited = inherited_text(document, page.xref, "Resources")
            document.xref_set_key(page.xref, "Resources", "<<>>" if inherited == "null" else inherited)
        number = reference(value_text(document, page.xref, "Resources"))
        holder, key = (page.xref, "Resources/Font") if number is None else (number, "Font")
        number = reference(value_text(document, holder, key))
        holder, key = (holder, f"{key}/") if number is None else (number, "")
        document.xref_set_key(holder, f"{key}{self._font_name}", f"{self._font_number} 0 R")

    @property
    def _font_name(self) -> str:
        """A name that no resource of the document has."""
        return f"Glyphless{self._font_number}"


def _begin(box: tuple[float, float, float, float], angle: int) -> pymupdf.Matrix:
    """The matrix of a word's text in a page whose y points down."""
    x0, y0, x1, y1 = box
    above = ASCENT / (ASCENT + DESCENT)
    if angle == 90:
        return pymupdf.Matrix(0, 1, 1, 0, x1 - above * (x1 - x0), y0)
    if angle == 180:
        return pymupdf.Matrix(-1, 0, 0, 1, x1, y1 - above * (y1 - y0))
    if angle == 270:
        return pymupdf.Matrix(0, -1, -1, 0, x0 + above * (x1 - x0), y1)
    return pymupdf.Matrix(1, 0, 0, -1, x0, y0 + above * (y1 - y0))


def _own_text(page: pymupdf.Page) -> tuple[list[tuple[float, float]], bool]:
    """The middles of the page's visible letters, as shares of it; and whether it has letters that nobody sees: drawn
    without ink, or with an image over them."""
    images = [(number, pymupdf.Rect(log[1])) for number, log in enumerate(page.get_bboxlog()) if log[0] == "fill-image"]
    visible: list[tuple[float, float]] = []
    has_hidden = False
    for span in page.get_texttrace():
        letters = [letter[3] for letter in span["chars"] if not chr(letter[0]).isspace()]
        is_drawn = span["type"] != _INVISIBLE and span["opacity"] > 0
        for x0, y0, x1, y1 in letters:
            middle = pymupdf.Point((x0 + x1) / 2, (y0 + y1) / 2)
            if is_drawn and not any(number > span["seqno"] and middle in box for number, box in images):
                shown = middle * page.rotation_matrix
                visible.append((shown.x / page.rect.width, shown.y / page.rect.height))
            else:
                has_hidden = True
    return visible, has_hidden


def _has_own(block: BlockWords, visible: list[tuple[float, float]]) -> bool:
    """Whether the page has much of the block's text itself."""
    x0, y0, x1, y1 = block.box
    num_letters = sum(len(word.text) for line in block.lines for word in line.words)
    return sum(x0 <= x <= x1 and y0 <= y <= y1 for x, y in visible) > _HAS_TEXT * num_letters


def _without_hidden_text(page: pymupdf.Page, *, is_all: bool) -> bool:
    """Remove the text that nobody sees, and return whether the page looks as before and has none left. is_all: whether
    it has no other."""
    before = page.get_pixmap(dpi=_COMPARED_DPI).samples
    page.add_redact_annot(page.rect * page.derotation_matrix)
    text = pymupdf.PDF_REDACT_TEXT_REMOVE if is_all else pymupdf.PDF_REDACT_TEXT_REMOVE_INVISIBLE
    page.apply_redactions(pymupdf.PDF_REDACT_IMAGE_NONE, pymupdf.PDF_REDACT_LINE_ART_NONE, text)
    return bool(before == page.get_pixmap(dpi=_COMPARED_DPI).samples and not _own_text(page)[1])


def _outline(entries: Iterable[OutlineEntry], document: pymupdf.Document) -> list[list[object]]:
    """The entries as MuPDF takes them: the first of level 1, and none more than one deeper than the one before."""
    made: list[list[object]] = []
    level = 0
    for entry in entries:
        if entry.page_index < document.page_count:
            level = min(entry.level, level + 1)
            page = document.load_page(entry.page_index)
            to = pymupdf.Point(0, (entry.y or 0) * page.rect.height) * page.derotation_matrix
            made.append([level, entry.title, entry.page_index + 1, {"kind": pymupdf.LINK_GOTO, "to": to}])
    return made
