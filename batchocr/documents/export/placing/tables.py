"""Where the cells of a table are: its rows and columns, cut where there is no ink."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from batchocr.documents.assembly.tables import TableCells
from batchocr.documents.export.placing.ink import InkRow, ink_rows
from batchocr.documents.export.placing.lines import cheapest_pieces
from batchocr.pages.searchable.letters import advance
from batchocr.pages.writing import Marks, runs_of

_CROSSED: Final = 0.2
"""The share of rows, those of headings over several columns, that may cross a gap between columns."""

_WIDE_GAP: Final = 2.0
"""The width of a gap between columns, in em, above which a wider gap is no better."""

_RULED: Final = 0.5
"""The share of a table's width or height that a rule takes."""

_RULE: Final = 3.0
"""What a rule in a gap is worth, in em of the gap."""

_LINE: Final = 1.2
"""The distance from line to line, in em."""


@dataclass(frozen=True, slots=True)
class CellText:
    """The text of a cell, in words with one space between them."""

    row: int
    column: int
    end_row: int
    end_column: int
    text: str

    @property
    def width(self) -> int:
        """The width of the text on one line, in 1/1000 em."""
        return sum(map(advance, self.text))


def texts_of(table: TableCells, text_of: Callable[[str], str]) -> list[CellText]:
    """The cells that have text, in a grid without the rows and columns in which none begins. text_of: of a cell's
    HTML."""
    cells = [(cell, text) for row in table.rows for cell in row if (text := text_of(cell.html))]
    rows = sorted({cell.row for cell, _ in cells})
    columns = sorted({cell.column for cell, _ in cells})
    return [
        CellText(
            bisect_left(rows, cell.row),
            bisect_left(columns, cell.column),
            bisect_left(rows, cell.end_row),
            bisect_left(columns, cell.column + cell.colspan),
            text,
        )
        for cell, text in cells
    ]


def cell_boxes(marks: Marks, rules: Marks, cells: Sequence[CellText]) -> list[tuple[int, int, int, int]] | None:
    """The box of each cell: x0, y0, x1, y1 in px; None if rows or columns cannot be told apart. marks: without the
    rules."""
    rows = ink_rows(marks)
    if not rows or not cells:
        return None
    num_rows, num_columns = max(cell.end_row for cell in cells), max(cell.end_column for cell in cells)
    em = float(np.median([row.height for row in rows])) / 0.95
    columns = _columns(marks, rules, rows, cells, num_columns, em)
    if columns is None:
        return None
    lines = np.zeros(num_rows)
    for cell in cells:
        if cell.end_row == cell.row + 1:
            room = columns[cell.end_column - 1][1] - columns[cell.column][0]
            needed = max(1.0, np.ceil(cell.width * em / 1000 / max(room * 1.1, em)))
            lines[cell.row] = max(lines[cell.row], needed)
    bands = _bands(rules, rows, lines, em)
    if bands is None:
        return None
    return [
        (columns[cell.column][0], bands[cell.row][0], columns[cell.end_column - 1][1], bands[cell.end_row - 1][1])
        for cell in cells
    ]


def _columns(
    marks: Marks, rules: Marks, rows: Sequence[InkRow], cells: Sequence[CellText], number: int, em: float
) -> list[tuple[int, int]] | None:
    """The [left, right) of each column."""
    widths = np.zeros(number)
    for cell in cells:
        if cell.end_column == cell.column + 1:
            widths[cell.column] = max(widths[cell.column], cell.width * em / 1000)
    crossed = np.sum([marks[row.top : row.bottom].any(axis=0) for row in rows], axis=0)
    free = runs_of(crossed <= _CROSSED * len(rows))
    free = [_emptiest(crossed, start, end) for start, end in free]
    free = [(start, end) for start, end in free if end - start > 0.1 * em]
    inner = [(start, end) for start, end in free if start > 0 and end < marks.shape[1]]
    left = free[0][1] if free and free[0][0] == 0 else 0
    right = free[-1][0] if free and free[-1][1] == marks.shape[1] else marks.shape[1]
    rewards = [_reward(end - start, em, rules[:, start:end].mean(axis=0)) for start, end in inner]
    return _segments(left, right, inner, widths / em, np.array(rewards), em)


def _emptiest(crossed: NDArray[np.int_], start: int, end: int) -> tuple[int, int]:
    """The widest part of a gap that is crossed least."""
    fewest = runs_of(crossed[start:end] == crossed[start:end].min())
    first, last = max(fewest, key=lambda run: run[1] - run[0])
    return start + first, start + last


def _bands(rules: Marks, rows: Sequence[InkRow], lines: NDArray[np.float64], em: float) -> list[tuple[int, int]] | None:
    """The [top, bottom) of each row of the table, which may have several rows of ink."""
    gaps = [(before.bottom, after.top) for before, after in pairwise(rows)]
    rewards = [_reward(end - start, em, rules[start:end].mean(axis=1)) for start, end in gaps]
    heights = np.where(lines > 0, lines * _LINE - (_LINE - 1), 0)
    return _segments(rows[0].top, rows[-1].bottom, gaps, heights, np.array(rewards), em)


def _reward(width: int, em: float, rules: NDArray[np.float64]) -> float:
    """What a gap is worth as a gap between rows or columns. rules: the share of each of its lines that rules take."""
    return min(width / em, _WIDE_GAP) + (_RULE if (rules > _RULED).any() else 0.0)


def _segments(
    first: int,
    last: int,
    gaps: Sequence[tuple[int, int]],
    lengths: NDArray[np.float64],
    rewards: NDArray[np.float64],
    em: float,
) -> list[tuple[int, int]] | None:
    """The [start, end) of as many segments as there are lengths (em), with a gap between each two; all other gaps lie
    within segments. None if there are too few gaps."""
    if len(lengths) > len(gaps) + 1:
        return None
    starts = np.array([first, *(end for _, end in gaps)], dtype=float)
    ends = np.array([*(start for start, _ in gaps), last], dtype=float)
    sizes = (ends[None, :] - starts[:, None]) / em
    costs = (np.minimum(_misfit(sizes - length) / (0.5 + 0.2 * length) ** 2, 50.0) for length in lengths)
    return [(int(starts[start]), int(ends[end])) for start, end in cheapest_pieces(costs, -2 * rewards)]


def _misfit(off: NDArray[np.float64]) -> NDArray[np.float64]:
    """The square of what a segment is longer than it should be, or of half of what it is shorter."""
    return np.where(off > 0, off, 0.5 * off) ** 2
