"""Fills a column of a page from top to bottom, block by block. Lengths are in points."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sample_data.training.formula import draw_formula
from sample_data.training.table import draw_table, set_table
from sample_data.training.truth import BELOW, BlockType, Mark, block_of
from sample_data.training.typesetting import MIDDLE, Sheet, Style, break_lines, line_break, set_line, text_width
from sample_data.training.words import draw_phrase, draw_text, pick


@dataclass(frozen=True, slots=True)
class PageStyle:
    """How a document looks: its paper, margins and fonts. indent: of first lines; gap: between blocks."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    columns: int
    body: Style
    heading: Style
    justified: bool
    indent: float
    gap: float
    emphasis: float


@dataclass(frozen=True, slots=True)
class Form:
    """How the lines of a block are placed in their column.

    left: indent of all lines; indent: extra indent of the first. mark: hangs before the first line, `hang` to the left
    of it. justified: if the page is. carried: the paragraph continues elsewhere, so its last line is full too.
    """

    left: float = 0.0
    indent: float = 0.0
    mark: str = ""
    hang: float = 0.0
    centred: bool = False
    justified: bool = False
    carried: bool = False


PLAIN = Form()


class Flow:
    """A column being filled. `y` is where the next block begins."""

    def __init__(
        self, rng: np.random.Generator, sheet: Sheet, style: PageStyle, column: tuple[float, float, float, float]
    ) -> None:
        """column: x0, y0, x1, y1."""
        self._rng = rng
        self._sheet = sheet
        self._style = style
        self._x, self.y, right, self._bottom = column
        self._width = right - self._x

    def has_room(self) -> bool:
        """Return whether two lines of text would fit."""
        return self.y + 2.4 * self._style.body.size < self._bottom

    def paragraph(self, words: list[str], *, indented: bool = True) -> list[str]:
        """Set as many of the words as fit. Returns the rest."""
        style = self._style
        indent = style.indent if indented else 0.0
        lines = break_lines(words, style.body, self._width, indent)
        step = style.body.leading * style.body.size
        num_lines = int((self._bottom - self.y - style.body.size) / step) + 1
        left_over = [word for line in lines[num_lines:] for word in line]
        form = Form(indent=indent, justified=True, carried=bool(left_over))
        self._set_lines("text", lines[:num_lines], style.body, form)
        self.y += style.gap if not left_over else 0.0
        return left_over

    def heading(self) -> None:
        """Set a heading of one or two lines, perhaps numbered."""
        rng, style = self._rng, self._style.heading
        words = draw_phrase(rng, int(rng.integers(1, 8))).split()
        if rng.uniform() < 0.35:
            number = pick(rng, ("{}", "{}.", "{}.{}", "{}.{}.", "Chapter {}", "{})"))
            words = [*number.format(rng.integers(1, 13), rng.integers(1, 10)).split(), *words]
        lines = break_lines(words, style, self._width)
        before = style.size * rng.uniform(0.2, 0.9)
        if self.y + before + len(lines) * style.size * style.leading + 3 * self._style.body.size > self._bottom:
            self.y = self._bottom  # no heading at a column's end
            return
        self.y += before
        self._set_lines("title", lines, style, Form(centred=rng.uniform() < 0.15))
        self.y += style.size * rng.uniform(0.1, 0.6)

    def list(self) -> None:
        """Set a list, each item a block."""
        rng, style = self._rng, self._style.body
        sign = pick(rng, ("•", "•", "•", "–", "-", "*", "{}.", "{}.", "{})", "({})", "alpha"))
        first, hang = int(rng.integers(1, 4)) if rng.uniform() < 0.1 else 1, style.size * rng.uniform(1.4, 2.2)
        start = style.size * rng.uniform(0, 2)
        space = rng.uniform(0, 0.5) * self._style.gap
        longest = np.exp(rng.uniform(np.log(25), np.log(220)))
        for number in range(first, first + rng.integers(2, 8)):
            mark = f"{chr(96 + number)})" if sign == "alpha" else sign.format(number)
            words = draw_text(rng, int(longest * rng.uniform(0.3, 1))).split()
            lines = break_lines(words, style, self._width - start - hang)
            if self.y + len(lines) * style.leading * style.size > self._bottom:
                break
            form = Form(left=start + hang, mark=mark, hang=hang, justified=True)
            self._set_lines("list_item", lines, style, form)
            self.y += space
        self.y += self._style.gap

    def table(self) -> None:
        """Set a table with a caption above or below, and sometimes a note."""
        rng, style = self._rng, self._style
        small = replace(style.body, size=style.body.size * rng.uniform(0.85, 1.0), leading=1.2)
        table = draw_table(rng, small, self._width)
        caption = f"{pick(rng, ('Table', 'Table', 'Tab.'))} {rng.integers(1, 30)}{pick(rng, ('.', ':', ''))} "
        above, note = rng.uniform() < 0.6, rng.uniform() < 0.3
        if self.y + table.height + 6 * style.body.size > self._bottom:
            self.y = self._bottom
            return
        if above:
            self._caption("table_caption", caption)
        left = self._x + pick_share(rng) * (self._width - table.width)
        box = (left - 1, self.y - 1, left + table.width + 1, self.y + table.height + 1)
        marks = set_table(self._sheet, table, left, self.y, padding=min(5.0, 0.4 * small.size))
        self._sheet.blocks.append(block_of("table", marks, box))
        self.y += table.height + 0.7 * style.body.size
        if note:
            self._set_lines("table_footnote", self._lines(draw_text(rng, 40), small), small)
            self.y += 0.5 * style.body.size
        if not above:
            self._caption("table_caption", caption)
        self.y += style.gap

    def formula(self) -> None:
        """Set a display formula, centred or indented, perhaps with its number at the right edge."""
        rng, size = self._rng, self._style.body.size * self._rng.uniform(1.0, 1.3)
        formula = draw_formula(rng, size)
        number = f"({rng.integers(1, 40)})" if rng.uniform() < 0.4 else ""
        height = formula.above + formula.below
        if formula.width > 0.8 * self._width or self.y + height + 2 * size > self._bottom:
            self.y += 0.01  # another draw may fit
            return
        self.y += 0.5 * size
        left = self._x + (0.5 if rng.uniform() < 0.7 else 0.1) * (self._width - formula.width)
        baseline = self.y + formula.above
        marks = formula.draw(self._sheet, left, baseline)
        right = left + formula.width
        if number:
            style = replace(self._style.body, face="regular")
            right = self._x + self._width
            start = right - text_width(number, style)
            digits = self._sheet.text(start, baseline, number, style)
            marks += [digits[0]._replace(token="\\tag{"), *digits[1:-1], digits[-1]._replace(token="}")]
        box = (left - 2, self.y - 1.5, right + 2, self.y + height + 1.5)
        self._sheet.blocks.append(block_of("equation", marks, box))
        self.y += height + 0.5 * size + self._style.gap

    def figure(self) -> None:
        """Set a drawing or a grey picture with its caption below."""
        rng, style = self._rng, self._style
        height = rng.uniform(60, 220)
        if self.y + height + 4 * style.body.size > self._bottom:
            self.y = self._bottom
            return
        width = self._width * rng.uniform(0.4, 1.0)
        left = self._x + pick_share(rng) * (self._width - width)
        box = (left, self.y, left + width, self.y + height)
        draw_figure(rng, self._sheet, box)
        self._sheet.blocks.append(block_of("image", [], (box[0] - 1, box[1] - 1, box[2] + 1, box[3] + 1)))
        self.y += height + 0.6 * style.body.size
        self._caption("image_caption", f"{pick(rng, ('Figure', 'Fig.', 'Figure'))} {rng.integers(1, 30)}. ")
        self.y += style.gap

    def _caption(self, kind: BlockType, opening: str) -> None:
        rng, body = self._rng, self._style.body
        face = ("regular", "italic", "bold")[rng.choice(3, p=(0.45, 0.4, 0.15))]
        style = Style(body.family, face, body.size * rng.uniform(0.85, 1), 1.25)
        lines = self._lines(opening + draw_text(rng, int(rng.uniform(10, 90))), style)
        self._set_lines(kind, lines, style, Form(centred=rng.uniform() < 0.6))
        self.y += 0.4 * body.size

    def _lines(self, text: str, style: Style) -> list[list[str]]:
        return break_lines(text.split(), style, self._width)

    def _set_lines(self, kind: BlockType, lines: list[list[str]], style: Style, form: Form = PLAIN) -> None:
        """Set lines one below the other as one block."""
        marks: list[Mark] = []
        emphasis = self._style.emphasis if kind == "text" else 0.0
        for number, words in enumerate(lines):
            baseline = self.y + (1 - BELOW + MIDDLE) * style.size
            is_last = number == len(lines) - 1 and not form.carried
            x, gap = self._start_and_gap(words, style, form, indent=0.0 if number else form.indent, is_last=is_last)
            if form.mark and number == 0:
                marks += self._sheet.text(x - form.hang, baseline, form.mark, replace(style, face="regular"))
            if marks:
                marks.append(line_break(marks[-1]))
            faces = [(word, emphasised(self._rng, style, emphasis)) for word in words]
            marks += set_line(self._sheet, x, baseline, faces, gap=gap, line=number)
            self.y += style.leading * style.size
        self._sheet.blocks.append(block_of(kind, marks))

    def _start_and_gap(
        self, words: list[str], style: Style, form: Form, *, indent: float, is_last: bool
    ) -> tuple[float, float]:
        """Return where a line begins and the gap between its words, whether left-aligned, justified or centred."""
        x = self._x + form.left + indent
        gap = text_width(" ", style)
        free = self._x + self._width - x - text_width(" ".join(words), style)
        if form.centred:
            return x + free / 2, gap
        if form.justified and self._style.justified and not is_last and len(words) > 1:
            gap += max(0.0, free) / (len(words) - 1)
        return x, gap


def pick_share(rng: np.random.Generator) -> float:
    """Return the place of a block that is narrower than its column: 0 is flush left, 0.5 centred."""
    return (0.5, 0.0)[rng.choice(2, p=(0.7, 0.3))]


def emphasised(rng: np.random.Generator, style: Style, share: float) -> Style:
    """Return a word's style: for this share of the words, another face of the same family."""
    if rng.uniform() >= share:
        return style
    return replace(style, face=("italic", "bold")[rng.integers(2)])


def draw_figure(rng: np.random.Generator, sheet: Sheet, box: tuple[float, float, float, float]) -> None:
    """Draw something that holds no text: a diagram of lines, or patches of grey."""
    x0, y0, x1, y1 = box
    if rng.uniform() < 0.6:
        sheet.page.draw_rect(box, width=0.8)

    def point() -> tuple[float, float]:
        return float(rng.uniform(x0 + 4, x1 - 4)), float(rng.uniform(y0 + 4, y1 - 4))

    filled = rng.uniform() < 0.4
    for _ in range(rng.integers(6, 24)):
        grey = (rng.uniform(0.2, 0.9),) * 3
        kind = rng.integers(3)
        if kind == 0:
            sheet.page.draw_line(point(), point(), width=rng.uniform(0.4, 2))
        elif kind == 1:
            (left, top), (right, bottom) = point(), point()
            corners = (min(left, right), min(top, bottom), max(left, right) + 1, max(top, bottom) + 1)
            sheet.page.draw_rect(corners, width=0.6, fill=grey if filled else None)
        else:
            centre = point()
            room = min(centre[0] - x0, x1 - centre[0], centre[1] - y0, y1 - centre[1])
            sheet.page.draw_circle(
                centre, max(1.0, room * rng.uniform(0.2, 1)), width=0.6, fill=grey if filled else None
            )
