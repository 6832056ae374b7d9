"""Pages set like the sample documents, with other words: an article, two columns, a letter, a fax, a recipe.

Fonts, sizes and distances are those of `sample_data/make_documents.py`; what stands in which order is drawn. And plain
pages, as a browser prints them: a heading, paragraphs, a list. Lengths are in points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from sample_data.training.flow import draw_figure
from sample_data.training.formula import draw_formula
from sample_data.training.scan import render, skewed
from sample_data.training.table import draw_table, set_table
from sample_data.training.truth import BlockType, Mark, TrainingPage, block_of
from sample_data.training.typesetting import FAMILIES, Sheet, Style, break_lines, line_break, set_line, text_width
from sample_data.training.words import draw_phrase, draw_repetitive_text, pick

_WIDTH, _HEIGHT, _MARGIN, _LEADING = 595.0, 842.0, 72.0, 1.34
_LONGEST_PHRASE = 32  # characters
_TEXT_WIDTH = _WIDTH - 2 * _MARGIN
_BOTTOM, _LETTERS_A_LINE = 735.0, 80
_LOWEST = 640.0
"""The first line of what goes on a plain page last."""
_ROMAN = Style("times", "regular", 10.5, _LEADING)


class Voice(Protocol):
    """What writes the text of a page."""

    def text(self, rng: np.random.Generator, num_characters: int) -> str:
        """Return sentences of about that many characters in all."""

    def phrase(self, rng: np.random.Generator) -> str:
        """Return a heading."""


class TrainingVoice:
    """The words of all training pages, and phrases that return."""

    def text(self, rng: np.random.Generator, num_characters: int) -> str:
        return draw_repetitive_text(rng, num_characters)

    def phrase(self, rng: np.random.Generator) -> str:
        """Return a heading that fits in a line."""
        phrase = draw_phrase(rng, int(rng.integers(1, 6)))
        return phrase if len(phrase) <= _LONGEST_PHRASE else phrase[:_LONGEST_PHRASE].rsplit(" ", 1)[0]


class _Column:
    """A column being filled. `y` is the baseline of the next line."""

    def __init__(
        self, rng: np.random.Generator, voice: Voice, sheet: Sheet, y: float, left: float, width: float
    ) -> None:
        self.rng, self.voice, self.sheet, self.y = rng, voice, sheet, y
        self._left, self._width = left, width

    def line(self, kind: BlockType, words: str, style: Style, *, y: float, share: float = 0.0) -> None:
        """Set a line: share 0 is flush left, 0.5 centred, 1 flush right."""
        x = self._left + share * (self._width - text_width(words, style))
        self.sheet.blocks.append(block_of(kind, self.sheet.text(x, y, words, style)))

    def heading(self, size: float) -> None:
        self.y += size
        self.line("title", self.voice.phrase(self.rng), Style("times", "bold", size), y=self.y)
        self.y += size + 6

    def paragraph(
        self,
        words: str,
        style: Style = _ROMAN,
        *,
        kind: BlockType = "text",
        hang: float = 0.0,
        mark: str = "",
        mark_width: float = 14.0,
        justified: bool = True,
        gap: float = 0.6,
    ) -> None:
        """Set a paragraph below the last one.

        hang: indent of all lines; mark: stands `mark_width` to the left of the first one. gap: to the next paragraph,
        in sizes of the font.
        """
        left, width = self._left + hang, self._width - hang
        lines = break_lines(words.split(), style, width)
        marks: list[Mark] = self.sheet.text(left - mark_width, self.y, mark, style) if mark else []
        for number, line in enumerate(lines):
            space = text_width(" ", style)
            if justified and number < len(lines) - 1 and len(line) > 1:
                space += (width - text_width(" ".join(line), style)) / (len(line) - 1)
            marks += [line_break(marks[-1])] if marks else []
            marks += set_line(self.sheet, left, self.y, [(word, style) for word in line], gap=space, line=number)
            self.y += style.size * style.leading
        self.sheet.blocks.append(block_of(kind, marks))
        self.y += style.size * gap

    def list(self) -> None:
        for _ in range(self.rng.integers(2, 6)):
            self.paragraph(
                self.voice.text(self.rng, int(self.rng.integers(20, 130))),
                kind="list_item",
                hang=26,
                mark="•",
                justified=False,
            )

    def table(self) -> None:
        style = Style("times", "regular", 9.5)
        table = draw_table(self.rng, style, 0.9 * self._width)
        self.line(
            "table_caption",
            f"Table 1. {self.voice.phrase(self.rng)}.",
            Style("times", "italic", 9.5),
            y=self.y + 4,
            share=0.5,
        )
        self.y += 14
        left = self._left + (self._width - table.width) / 2
        box = (left - 1, self.y - 1, left + table.width + 1, self.y + table.height + 1)
        self.sheet.blocks.append(block_of("table", set_table(self.sheet, table, left, self.y, padding=4.0), box))
        self.y += table.height + 14
        if self.rng.uniform() < 0.4:
            note = Style("times", "regular", 8.5)
            self.line("table_footnote", self.voice.phrase(self.rng) + ".", note, y=self.y, share=0.5)
        self.y += 8

    def formula(self) -> None:
        formula = draw_formula(self.rng, 13.0)
        if formula.width > 0.8 * self._width:
            return
        self.y += formula.above
        left = self._left + (self._width - formula.width) / 2
        box = (left - 2, self.y - formula.above - 1.5, left + formula.width + 2, self.y + formula.below + 1.5)
        self.sheet.blocks.append(block_of("equation", formula.draw(self.sheet, left, self.y), box))
        self.y += formula.below + 22

    def figure(self) -> None:
        height = self.rng.uniform(90, 160)
        left = self._left + 0.2 * self._width
        box = (left, self.y, left + 0.6 * self._width, self.y + height)
        draw_figure(self.rng, self.sheet, box)
        self.sheet.blocks.append(block_of("image", [], box))
        self.y += height + 20
        self.line(
            "image_caption",
            f"Figure 1. {self.voice.phrase(self.rng)}.",
            Style("times", "italic", 9.5),
            y=self.y,
            share=0.5,
        )
        self.y += 26


def make_familiar_page(voice: Voice, *key: int) -> TrainingPage:
    """Return the page with this key; it is always the same."""
    rng = np.random.default_rng(key)
    make = (_article, _article, _two_columns, _letter, _fax, _recipe)[key[-1] % 6]
    return make(rng, voice)


def make_plain_page(voice: Voice, *key: int) -> TrainingPage:
    """Return the plain page with this key; it is always the same."""
    rng = np.random.default_rng(key)
    sheet = Sheet(_WIDTH, _HEIGHT)
    margin = rng.uniform(56, 90)
    style = Style(pick(rng, FAMILIES), "regular", rng.uniform(9.0, 13.0), rng.uniform(1.15, 1.45), rng.uniform() < 0.5)
    column = _Column(rng, voice, sheet, rng.uniform(80, 110), margin, _WIDTH - 2 * margin)
    bottom = rng.uniform(250, _LOWEST)
    while column.y < bottom:
        if rng.uniform() < 0.5:
            number = f"{rng.integers(1, 20)}. " if rng.uniform() < 0.5 else ""
            heading = Style(style.family, "bold", style.size * rng.uniform(1.1, 1.6))
            column.y += 0.5 * heading.size
            column.line("title", number + voice.phrase(rng), heading, y=column.y)
            column.y += 1.7 * heading.size
        for _ in range(rng.integers(1, 5)):
            if column.y < _LOWEST:
                words = voice.text(rng, int(rng.integers(60, 420)))
                column.paragraph(words, style, justified=False, gap=rng.uniform(0.7, 1.0))
        if rng.uniform() < 0.7:
            _plain_list(column, style)
    return render(sheet)


def _plain_list(column: _Column, style: Style) -> None:
    """Set short items close below each other."""
    rng = column.rng
    hang, mark_width, gap = rng.uniform(18, 40), style.size * rng.uniform(0.7, 1.3), pick(rng, (0.0, 0.0, 0.0, 0.3))
    for _ in range(rng.integers(3, 8)):
        if column.y < _LOWEST:
            words = column.voice.text(rng, int(rng.integers(8, 60)))
            column.paragraph(
                words, style, kind="list_item", hang=hang, mark="•", mark_width=mark_width, justified=False, gap=gap
            )
    column.y += 0.8 * style.size


def _article(rng: np.random.Generator, voice: Voice) -> TrainingPage:
    sheet = Sheet(_WIDTH, _HEIGHT)
    column = _Column(rng, voice, sheet, 100.0, _MARGIN, _TEXT_WIDTH)
    _running_lines(column)
    if rng.uniform() < 0.5:
        column.line("title", voice.phrase(rng), Style("times", "bold", 21.0), y=column.y)
        column.line("text", _author(rng), Style("times", "italic", 11.5), y=column.y + 22)
        column.y += 38
    extras: list[Callable[[], None]] = [column.list, column.table, column.formula, column.figure]
    rng.shuffle(extras)  # type: ignore[arg-type]
    bottom = rng.uniform(540, _BOTTOM + 60)
    while column.y < bottom - 60:
        if rng.uniform() < 0.5:
            column.heading(13.0)
        room = int((_BOTTOM - column.y) / (_LEADING * _ROMAN.size)) * _LETTERS_A_LINE
        column.paragraph(voice.text(rng, min(room, int(rng.integers(60, 900)))))
        if extras and column.y < _BOTTOM - 240:
            extras.pop()()
    if rng.uniform() < 0.4:
        sheet.rule(_MARGIN, 758, _MARGIN + 110, 758)
        note = Style("times", "regular", 8.5)
        column.line("page_footnote", f"* {voice.text(rng, 20)[:100]}", note, y=771)
    _footer(column)
    return render(sheet)


def _two_columns(rng: np.random.Generator, voice: Voice) -> TrainingPage:
    sheet = Sheet(_WIDTH, _HEIGHT)
    whole = _Column(rng, voice, sheet, 104.0, _MARGIN, _TEXT_WIDTH)
    _running_lines(whole)
    whole.line("title", voice.phrase(rng), Style("times", "bold", 24.0), y=104, share=0.5)
    whole.line("text", _author(rng), Style("times", "italic", 11.0), y=124, share=0.5)
    sheet.rule(_MARGIN, 138, _WIDTH - _MARGIN, 138)
    width = (_TEXT_WIDTH - 22) / 2
    for number in range(2):
        column = _Column(rng, voice, sheet, 164.0, _MARGIN + number * (width + 22), width)
        while column.y < 600:
            if rng.uniform() < 0.4:
                column.line("title", voice.phrase(rng), Style("times", "bold", 12.0), y=column.y + 6)
                column.y += 24
            column.paragraph(voice.text(rng, int(rng.integers(150, 480))))
    sheet.rule(_WIDTH / 2, 152, _WIDTH / 2, 770, 0.4)
    _footer(whole)
    return render(sheet)


def _letter(rng: np.random.Generator, voice: Voice) -> TrainingPage:
    """A typed letter as a flatbed scanner saw it."""
    sheet = Sheet(_WIDTH, _HEIGHT)
    column = _Column(rng, voice, sheet, 92.0, 70.0, 462.0)
    typed = Style("courier", "regular", 12.0, _LEADING)
    column.paragraph(voice.phrase(rng) + ",", typed, justified=False)
    while column.y < 500:
        column.paragraph(voice.text(rng, int(rng.integers(60, 420))), typed, justified=False)
    column.paragraph(_author(rng), typed, justified=False)
    page = skewed(render(sheet, dpi=150), float(rng.uniform(-0.7, 0.7)))
    soft = np.asarray(Image.fromarray(page.image).filter(ImageFilter.GaussianBlur(0.6)), dtype=np.float32)
    shade = 40 + soft * (215 / 255) * (rng.uniform(215, 240) / 255) - rng.uniform(0, 12, soft.shape)
    return TrainingPage(_bytes(shade // 16 * 17), page.blocks)


def _fax(rng: np.random.Generator, voice: Voice) -> TrainingPage:
    """Black and white dots."""
    sheet = Sheet(_WIDTH, _HEIGHT)
    column = _Column(rng, voice, sheet, 110.0, _MARGIN, _TEXT_WIDTH)
    sender = f"{rng.integers(10, 29)}-MAY 1{rng.integers(10)}:41   {voice.phrase(rng).upper()}   P.1/3"
    sheet.blocks.append(block_of("header", sheet.text(40, 30, sender, Style("courier", "regular", 9.0))))
    column.line("title", voice.phrase(rng), Style("helvetica", "bold", 17.0), y=84)
    sheet.rule(_MARGIN, 92, _WIDTH - _MARGIN, 92, 1.4)
    large = Style("times", "regular", 15.0, _LEADING)
    while column.y < 500:
        column.paragraph(voice.text(rng, int(rng.integers(40, 420))), large, justified=False)
    page = render(sheet)
    return TrainingPage(_bytes(255 * (page.image > 150)), page.blocks)


def _recipe(rng: np.random.Generator, voice: Voice) -> TrainingPage:
    sheet = Sheet(_WIDTH, _HEIGHT)
    column = _Column(rng, voice, sheet, 100.0, _MARGIN, _TEXT_WIDTH)
    column.heading(18.0)
    roman = Style("times", "regular", 12.0, _LEADING)
    while column.y < 420:
        column.paragraph(voice.text(rng, int(rng.integers(200, 700))), roman)
    return render(sheet)


def _running_lines(column: _Column) -> None:
    sheet = column.sheet
    header = sheet.text(_MARGIN, 50, column.voice.phrase(column.rng).upper(), Style("helvetica", "bold", 8.0))
    sheet.blocks.append(block_of("header", header))
    sheet.rule(_MARGIN, 56, _WIDTH - _MARGIN, 56)


def _footer(column: _Column) -> None:
    footer = column.sheet.text(_MARGIN, 802, column.voice.phrase(column.rng), Style("times", "italic", 8.5))
    column.sheet.blocks.append(block_of("footer", footer))
    column.line("page_number", str(column.rng.integers(1, 300)), Style("times", "regular", 9.5), y=802, share=1.0)


def _author(rng: np.random.Generator) -> str:
    first, last = ("Enid", "Osric", "Maud", "Ivo", "Petra"), ("Larkspur", "Quint", "Abernathy", "Vole", "Westerby")
    return f"{first[rng.integers(5)]} {last[rng.integers(5)]}"


def _bytes(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    return values.clip(0, 255).astype(np.uint8)
