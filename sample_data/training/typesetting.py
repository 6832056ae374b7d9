"""Sets characters on a PDF page in PyMuPDF's own fonts and records where each one is. Lengths are in points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import pymupdf

from sample_data.training.truth import Block, Mark

Face: TypeAlias = Literal["regular", "bold", "italic", "bold-italic"]
_FONTS = {
    "helvetica": ("helv", "hebo", "heit", "hebi"),
    "times": ("tiro", "tibo", "tiit", "tibi"),
    "courier": ("cour", "cobo", "coit", "cobi"),
}
FAMILIES = tuple(_FONTS)
_FACES: tuple[Face, ...] = ("regular", "bold", "italic", "bold-italic")
_LIGATURES = {"ﬁ": "fi", "ﬂ": "fl"}
MIDDLE = 0.25
"""The height of the middle of small letters above the baseline, in font sizes."""


@dataclass(frozen=True, slots=True)
class Style:
    """A font at a size. leading: between baselines, in font sizes. ligatures: whether fi and fl are one glyph."""

    family: str
    face: Face
    size: float
    leading: float = 1.3
    ligatures: bool = False

    @property
    def font(self) -> pymupdf.Font:
        return load_font(_FONTS[self.family][_FACES.index(self.face)])


@cache
def load_font(name: str) -> pymupdf.Font:
    return pymupdf.Font(name)


@cache
def _advance(font: pymupdf.Font, character: str) -> float:
    """The width of a character in font sizes (cached, because each call goes through MuPDF's bindings)."""
    return float(font.glyph_advance(ord(character)))


def text_width(words: str, style: Style) -> float:
    """Return the width of the words."""
    font = style.font
    return style.size * sum(_advance(font, glyph) for glyph in _glyphs(words, style))


def _glyphs(words: str, style: Style) -> str:
    """Return the characters that are set for these words."""
    if style.ligatures and style.family != "courier":
        for glyph, letters in _LIGATURES.items():
            words = words.replace(letters, glyph)
    return words


class Sheet:
    """A page being set."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.blocks: list[Block] = []
        self._document = pymupdf.open()
        self.page = self._document.new_page(width=width, height=height)
        self._writer = pymupdf.TextWriter(self.page.rect)

    def text(self, x: float, baseline: float, words: str, style: Style, line: int = 0) -> list[Mark]:
        """Set words starting at x and return their marks, one per character."""
        font, size = style.font, style.size
        glyphs = _glyphs(words, style)
        self._writer.append((x, baseline), glyphs, font=font, fontsize=size)
        marks = []
        for glyph in glyphs:
            letters = _LIGATURES.get(glyph, glyph)
            width = size * _advance(font, glyph) / len(letters)
            for letter in letters:
                marks.append(Mark(letter, x, x + width, baseline - MIDDLE * size, size, line))
                x += width
        return marks

    def rule(self, x0: float, y0: float, x1: float, y1: float, width: float = 0.6) -> None:
        self.page.draw_line((x0, y0), (x1, y1), width=width)

    def close(self) -> pymupdf.Page:
        """Return the page with all its text."""
        self._writer.write_text(self.page)
        return self.page


def break_lines(words: Sequence[str], style: Style, width: float, first_indent: float = 0.0) -> list[list[str]]:
    """Return the words of each line, as many as fit; a word wider than a line gets its own."""
    space = text_width(" ", style)
    lines: list[list[str]] = [[]]
    free = width - first_indent
    for word in words:
        needed = text_width(word, style)
        if lines[-1] and needed + space > free:
            lines.append([])
            free = width
        free -= needed + (space if lines[-1] else 0.0)
        lines[-1].append(word)
    return lines


def set_line(
    sheet: Sheet, x: float, baseline: float, words: Sequence[tuple[str, Style]], *, gap: float, line: int
) -> list[Mark]:
    """Set a line of words, each in its own face, with `gap` between them. Returns their marks, including spaces."""
    marks: list[Mark] = []
    for word, style in words:
        if marks:
            marks.append(Mark(" ", x, x + gap, baseline - MIDDLE * style.size, style.size, line))
            x += gap
        marks += sheet.text(x, baseline, word, style, line)
        x = marks[-1].x1
    return marks


def line_break(after: Mark) -> Mark:
    """Return the space that represents the end of a line in the text."""
    return Mark(" ", after.x1, after.x1 + 0.3 * after.size, after.y, after.size, after.line)
