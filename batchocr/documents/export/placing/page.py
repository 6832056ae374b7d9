"""The words of a page and where they are: one tree of blocks, lines and words for all formats that show places."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Final

import numpy as np
from PIL import Image

from batchocr.data import Block, PageResult, around
from batchocr.documents.assembly.tables import RAISED, cell_text, clean_table
from batchocr.documents.export.placing.ink import (
    InkRow,
    ink_rows,
    levelled,
    marks_in,
    rules_in,
    slope_of,
    with_bands_turned,
)
from batchocr.documents.export.placing.lines import divides, text_in_rows, words_in_row
from batchocr.documents.export.placing.tables import cell_boxes, texts_of
from batchocr.documents.markup.mathml import to_mathml
from batchocr.pages.kinds import kind_of
from batchocr.pages.protocol.markdown import INLINE_FORMULA, code_in, latex_in
from batchocr.pages.protocol.sanitize import harmless_characters
from batchocr.pages.searchable.font import ASCENT, DESCENT
from batchocr.pages.searchable.letters import WIDE, advance, drawn_order
from batchocr.pages.searchable.placed_text import BlockWords, Box, PlacedLine, Word
from batchocr.pages.writing import Marks

_MARGIN_PX: Final = 3
"""The margin around a block in which its ink is looked for: letters often reach over the edge of their block."""

_RULE_INCHES: Final = 0.5
_USUAL_LONG_SIDE_INCHES: Final = 11
"""The long side of pages whose resolution is not known, in inches."""

_TAG: Final = re.compile(r"<[^>]*>")
_LOW: Final = frozenset("acemnorsuvwxz.,;:-–—_·…gpqy")
_DESCENDS: Final = frozenset("gjpqyQ,;()[]{}|@_/ç")


def page_words(row: PageResult, image: Image.Image | None) -> list[BlockWords]:
    """The blocks of the page that have text, in reading order. image: the page as it was read; without it each block is
    one word."""
    inches = max(row.width or 1, row.height or 1) / row.dpi if row.dpi else _USUAL_LONG_SIDE_INCHES
    made = []
    for number, block in enumerate(row.blocks):
        content = harmless_characters(block.content or "").strip()
        role = kind_of(block.type).role
        if not content or role == "figure":
            continue
        x0, y0, x1, y1 = (min(1.0, max(0.0, share)) for share in block.bbox)  # 0 for nan
        box = (x0, y0, x1, y1)
        upright = None
        if image is not None and role != "formula":
            upright = _Upright.of(image, box, block, max(1, round(max(image.size) / inches * _RULE_INCHES)))
        lines = None if upright is None else upright.lines(block.type, content)
        is_unclear = lines is None and role != "formula"
        if lines is None:
            text = " ".join(_plain(block.type, content).split())
            lines = (PlacedLine(box, (Word(text, box),)),) if text else ()
        if lines:
            made.append(BlockWords(number, block.type, box, block.angle or 0, block.confidence, lines, is_unclear))
    return made


def plain_text(content: str) -> str:
    """The text of a block as it is seen, on one line."""
    return " ".join(_plain("text", harmless_characters(content)).split())


def _plain(type: str, content: str) -> str:
    """The text of a block as it is seen, in lines where the model wrote lines."""
    role = kind_of(type).role
    if role == "formula":
        return _formula(latex_in(content))
    if role == "table":
        return _cell_text(content)
    shown = code_in(content)[1] if role == "code" else RAISED.sub("", content)
    return INLINE_FORMULA.sub(lambda formula: _formula(formula[1]), shown)


def _formula(latex: str) -> str:
    """The letters and signs of a formula, without spaces, so that it is one word."""
    text = unescape(_TAG.sub("", to_mathml(latex, display=False)))
    return "".join(unicodedata.normalize("NFKC", text).split())


def _cell_text(html: str) -> str:
    return cell_text(INLINE_FORMULA.sub(lambda formula: _formula(unescape(formula[1])), html))


@dataclass(frozen=True, slots=True)
class _Upright:
    """A block turned upright and levelled."""

    marks: Marks
    """The block's ink, without the rules."""
    rules: Marks
    slope: float
    angle: int
    left: int
    """The left edge of the block's crop on the page, in px."""
    top: int
    """The top edge of the block's crop on the page, in px."""
    width: int
    """The width of the block's crop, in px."""
    height: int
    """The height of the block's crop, in px."""
    page_size: tuple[int, int]
    """Width and height of the page, in px."""

    @classmethod
    def of(cls, image: Image.Image, box: Box, block: Block, rule_px: int) -> _Upright | None:
        """The block, cut out of the page and turned; None if it has no area. rule_px: what is longer is a rule, and no
        letter."""
        x0, x1 = (round(share * image.width) for share in box[::2])
        y0, y1 = (round(share * image.height) for share in box[1::2])
        if x0 >= x1 or y0 >= y1:
            return None
        x0, y0 = max(0, x0 - _MARGIN_PX), max(0, y0 - _MARGIN_PX)
        x1, y1 = min(image.width, x1 + _MARGIN_PX), min(image.height, y1 + _MARGIN_PX)
        angle = block.angle or 0
        crop = image.crop((x0, y0, x1, y1)).convert("L")
        marks = marks_in(crop.rotate(angle, expand=True) if angle else crop)
        if kind_of(block.type).role == "table":
            marks = with_bands_turned(marks, rule_px // 8)
        rules = rules_in(marks, rule_px)
        marks &= ~rules
        slope = slope_of(marks)
        marks, rules = levelled(marks, slope), levelled(rules, slope)
        return cls(marks, rules, slope, angle, x0, y0, x1 - x0, y1 - y0, image.size)

    def lines(self, type: str, content: str) -> tuple[PlacedLine, ...] | None:
        """The lines of the block's text; None if they are unclear."""
        if kind_of(type).role != "table":
            text = "\n".join(" ".join(line.split()) for line in _plain(type, content).split("\n") if line.strip())
            return self._lines_in(text, 0, 0, self.marks) if text else ()
        table = clean_table(content)
        if table is None:
            return None
        cells = texts_of(table, _cell_text)
        boxes = cell_boxes(self.marks, self.rules, cells)
        if boxes is None:
            return None
        found: list[PlacedLine] = []
        for cell, (x0, y0, x1, y1) in zip(cells, boxes, strict=True):
            lines = self._lines_in(cell.text, x0, y0, self.marks[y0:y1, x0:x1])
            box = self._box(x0, y0, x1, y1)
            found += lines or [PlacedLine(box, (Word(cell.text, box),))]
        return tuple(found)

    def _lines_in(self, text: str, left: int, top: int, marks: Marks) -> tuple[PlacedLine, ...] | None:
        """The lines of a text in a part of the block that begins at `left`, `top`."""
        rows = ink_rows(marks)
        parts = text_in_rows(text, rows)
        if parts is None:
            return None
        filled = [
            (row, text[start:end] + ("-" if divides(text, end) else ""))
            for row, (start, end) in zip(rows, parts, strict=True)
            if start < end
        ]
        bands = _bands([row for row, _ in filled], [part for _, part in filled])
        lines = []
        for (row, part), (band_top, band_bottom) in zip(filled, bands, strict=True):
            words = part.split()
            order = drawn_order(words)
            places = zip(order, words_in_row([words[index] for index in order], row), strict=True)
            boxes = {
                index: self._box(left + start, top + band_top, left + end, top + band_bottom)
                for index, (start, end) in places
            }
            placed = tuple(Word(word, boxes[index]) for index, word in enumerate(words))
            lines.append(PlacedLine(around([word.box for word in placed]), placed))
        return tuple(lines)

    def _box(self, left: float, top: float, right: float, bottom: float) -> Box:
        """The box on the page, as shares."""
        fallen = self.slope * ((left + right) / 2 - self.marks.shape[1] / 2)
        top, bottom = top + fallen, bottom + fallen
        x0, y0, x1, y1 = {
            0: (left, top, right, bottom),
            90: (self.width - bottom, left, self.width - top, right),
            180: (self.width - right, self.height - bottom, self.width - left, self.height - top),
            270: (top, self.height - right, bottom, self.height - left),
        }.get(self.angle, (left, top, right, bottom))
        width, height = self.page_size
        xs, ys = ((x + self.left) / width for x in (x0, x1)), ((y + self.top) / height for y in (y0, y1))
        (x0, x1), (y0, y1) = ([min(1.0, max(0.0, share)) for share in shares] for shares in (xs, ys))
        return x0, y0, x1, y1


def _bands(rows: Sequence[InkRow], texts: Sequence[str]) -> Iterator[tuple[float, float]]:
    """The top and bottom of each line's box: from above its ascenders to below its descenders, whether or not it has
    any. Rows that are far higher or lower than most, as with a formula in them, get boxes like the others."""
    shapes = [_shape(text) for text in texts]
    ems = [row.height / (rise + fall) for row, (rise, fall) in zip(rows, shapes, strict=True)]
    usual = float(np.median(ems)) if ems else 0.0
    for row, (_, fall), em in zip(rows, shapes, ems, strict=True):
        if 0.6 * usual < em < 1.35 * usual:
            baseline = row.bottom - fall * em
        else:
            em, baseline = usual, (row.top + row.bottom) / 2 + 0.28 * usual
        yield baseline - ASCENT * em, baseline + DESCENT * em


def _shape(text: str) -> tuple[float, float]:
    """How far a text rises over its baseline and falls under it, in em."""
    letters = [letter for letter in text if letter != " "]
    if any(advance(letter) == WIDE for letter in letters):
        return 0.82, 0.1
    rises = 0.48 if all(letter in _LOW for letter in letters) else 0.71
    return rises, 0.21 if any(letter in _DESCENDS for letter in letters) else 0.0
