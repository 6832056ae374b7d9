"""Tables, set in rows and columns and written as OTSL. Lengths are in points.

OTSL, as MinerU writes it: `<fcel>` before the text of a cell, `<ecel>` for an empty one, `<lcel>` for one that is part
of its left neighbour, `<nl>` after each row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sample_data.training.truth import Mark
from sample_data.training.typesetting import MIDDLE, Sheet, Style, text_width
from sample_data.training.words import Diction, draw_number, draw_word, pick

CELL, EMPTY, JOINED, ROW_END = "<fcel>", "<ecel>", "<lcel>", "<nl>"
OTSL_TOKENS = (CELL, EMPTY, JOINED, "<ucel>", "<xcel>", ROW_END)


@dataclass(frozen=True, slots=True)
class Table:
    """cells: rows of texts; '' is empty, None is part of the cell to its left. widths: of columns."""

    cells: tuple[tuple[str | None, ...], ...]
    widths: tuple[float, ...]
    row_height: float
    style: Style
    head: Style
    ruled: str

    @property
    def width(self) -> float:
        return sum(self.widths)

    @property
    def height(self) -> float:
        return self.row_height * len(self.cells)


def draw_table(rng: np.random.Generator, style: Style, max_width: float) -> Table:
    """Return a table of at most six columns that fits the width."""
    head = Style(style.family, "bold", style.size)
    diction = Diction(made_up=0.3, random=0.15, number=0.05)
    padding = style.size * rng.uniform(0.5, 1.1)
    kinds, widths = [], []
    for _ in range(rng.integers(2, 7)):
        kind = pick(rng, ("number", "word", "words"))
        width = 2 * padding + style.size * {"number": 4.0, "word": 4.8, "words": 8.5}[kind] * rng.uniform(0.9, 1.4)
        if widths and sum(widths) + width > max_width:
            break
        kinds.append(kind)
        widths.append(min(width, max_width))
    rows: list[tuple[str | None, ...]] = []
    for row in range(rng.integers(2, 9)):
        cells: list[str | None] = []
        for kind, width in zip(kinds, widths, strict=True):
            free = width - 2 * padding
            words = _cell(rng, "words" if row == 0 else kind, diction)
            cells.append(_fitting(words, head if row == 0 else style, free))
        rows.append(tuple(cells))
    if len(kinds) > 2 and rng.uniform() < 0.12:
        rows.insert(0, _spanning_row(rng, rows[0], widths, head))
    stretch = rng.uniform(1.5, 2.2)
    return Table(
        tuple(rows), tuple(widths), style.size * stretch, style, head, pick(rng, ("all", "all", "rows", "head"))
    )


def set_table(sheet: Sheet, table: Table, left: float, top: float, *, padding: float) -> list[Mark]:
    """Set the table and return the marks of its OTSL."""
    marks: list[Mark] = []
    for number, row in enumerate(table.cells):
        baseline = top + (number + 0.5) * table.row_height + 0.3 * table.style.size
        x = left
        style = table.head if number == 0 else table.style
        for words, width in zip(row, table.widths, strict=True):
            place = Mark(CELL, x, x + width, baseline - MIDDLE * style.size, style.size, number)
            if words:
                set_words = sheet.text(x + padding, baseline, words, style, number)
                marks += [place._replace(x0=x + padding - 1, x1=x + padding + 1), *set_words]
            else:
                marks.append(place._replace(token=JOINED if words is None else EMPTY))
            x += width
        marks.append(marks[-1]._replace(token=ROW_END))
    _rule(sheet, table, left, top)
    return marks


def _cell(rng: np.random.Generator, kind: str, diction: Diction) -> str:
    if rng.uniform() < 0.06:
        return ""
    if kind == "number":
        return draw_number(rng)
    words = [draw_word(rng, diction) for _ in range(1 if kind == "word" else rng.integers(1, 5))]
    return " ".join([words[0][:1].upper() + words[0][1:] if rng.uniform() < 0.4 else words[0], *words[1:]])


def _fitting(words: str, style: Style, width: float) -> str:
    while words and text_width(words, style) > width:
        words = words[:-1].rstrip()
    return words


def _spanning_row(
    rng: np.random.Generator, below: tuple[str | None, ...], widths: list[float], head: Style
) -> tuple[str | None, ...]:
    """Return a first row with one cell that spans two columns."""
    first = int(rng.integers(len(below) - 1))
    words = _fitting(_cell(rng, "words", Diction(0.3, 0.1, 0.0)), head, widths[first] + widths[first + 1] - head.size)
    row: list[str | None] = [""] * len(below)
    row[first], row[first + 1] = words or "All", None
    return tuple(row)


def _rule(sheet: Sheet, table: Table, left: float, top: float) -> None:
    """Draw the lines: around every cell, under every row, or only above, below and under the head."""
    num_rows, right = len(table.cells), left + table.width
    drawn = (0, 1, num_rows) if table.ruled == "head" else range(num_rows + 1)
    for row in drawn:
        sheet.rule(left, top + row * table.row_height, right, top + row * table.row_height)
    if table.ruled != "all":
        return
    for column in range(len(table.widths) + 1):
        x = left + sum(table.widths[:column])
        for row, cells in enumerate(table.cells):
            if column in (0, len(cells)) or cells[column] is not None:
                sheet.rule(x, top + row * table.row_height, x, top + (row + 1) * table.row_height)
