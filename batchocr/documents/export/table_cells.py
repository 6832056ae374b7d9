"""The cells of a table in HTML, each where it stands in the table's grid."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TAG: Final = re.compile(r"<(/?)([a-z]+)([^>]*)>")
_SPAN: Final = re.compile(r'(row|col)span="(\d+)"')
_MAX_AREA: Final = 1_000_000
"""Cells of a grid. Spans cost a model nothing to write; a table of a full page has a few hundred."""

_MAX_HEADER_ROWS: Final = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table. row, column: where it begins. html: what is in it. is_header: whether it is a `th`."""

    row: int
    column: int
    rowspan: int
    colspan: int
    html: str
    is_header: bool

    @property
    def end_row(self) -> int:
        return self.row + self.rowspan

    def tag(self, rowspan: int) -> str:
        """The cell as HTML, over so many rows."""
        name = "th" if self.is_header else "td"
        spans = f' colspan="{self.colspan}"' * (self.colspan > 1) + f' rowspan="{rowspan}"' * (rowspan > 1)
        return f"<{name}{spans}>{self.html}</{name}>"


@dataclass(frozen=True, slots=True)
class TableCells:
    """A table taken apart. before, after: text around the table. caption: its `caption`, with the tags; '' if there is
    none. rows: the cells that begin in each."""

    before: str
    caption: str
    rows: list[list[Cell]]
    num_columns: int
    after: str

    @property
    def num_header_rows(self) -> int:
        """How many rows at the top name the columns: those of `th` alone, or the first, with what it reaches into.

        0 if that would be all rows, or many.
        """
        are_headers = [bool(row) and all(cell.is_header for cell in row) for row in self.rows]
        end = max(1, [*are_headers, False].index(False))
        row = 0
        while row < min(end, len(self.rows)):
            end = max([end, *(cell.end_row for cell in self.rows[row])])
            row += 1
        return end if end <= _MAX_HEADER_ROWS and end < len(self.rows) else 0


@dataclass(frozen=True, slots=True)
class _Read:
    """A cell as it is written, before its place is known."""

    html: str
    rowspan: int
    colspan: int
    is_header: bool


def table_cells(html: str) -> TableCells | None:
    """The table taken apart; None if there is not just one, or if its grid is beyond all bounds.

    html: sanitised, so every tag is small letters and closed. A table within a cell is part of the cell.
    """
    rows: list[list[_Read]] = []
    depth = cell_start = caption_start = 0
    start = end = -1
    opening = caption = ""
    for tag in _TAG.finditer(html):
        closes, name = bool(tag[1]), tag[2]
        if name == "table":
            if not closes and depth == 0:
                if start >= 0:
                    return None
                start = tag.start()
            depth += -1 if closes else 1
            if depth == 0:
                end = tag.end()
        elif depth == 1 and name == "caption" and not closes:
            caption_start = tag.start()
        elif depth == 1 and name == "caption":
            caption += html[caption_start : tag.end()]
        elif depth == 1 and name == "tr" and not closes:
            rows.append([])
        elif depth == 1 and name in ("td", "th") and not closes:
            cell_start, opening = tag.end(), tag[0]
        elif depth == 1 and name in ("td", "th") and rows:
            rows[-1].append(_read(opening, html[cell_start : tag.start()]))
    if not rows or end < 0:
        return None
    placed = _placed(rows)
    return placed and TableCells(html[:start], caption, *placed, html[end:])


def _read(opening: str, html: str) -> _Read:
    spans = {name: min(1000, max(1, int(number))) for name, number in _SPAN.findall(opening)}
    return _Read(html, spans.get("row", 1), spans.get("col", 1), opening.startswith("<th"))


def _placed(read: list[list[_Read]]) -> tuple[list[list[Cell]], int] | None:
    """The rows with each cell at the first place that no other covers, as browsers do, and how many columns they
    have; None beyond all bounds."""
    free_from: list[int] = []  # for each column, the row in which nothing covers it any more
    rows: list[list[Cell]] = []
    area = 0
    for row, cells in enumerate(read):
        placed: list[Cell] = []
        column = 0
        for cell in cells:
            while column < len(free_from) and free_from[column] > row:
                column += 1
            rowspan = min(cell.rowspan, len(read) - row)
            area += rowspan * cell.colspan
            if area > _MAX_AREA:
                return None
            end = column + cell.colspan
            free_from += [0] * (end - len(free_from))
            free_from[column:end] = [row + rowspan] * cell.colspan
            placed.append(Cell(row, column, rowspan, cell.colspan, cell.html, cell.is_header))
            column = end
        rows.append(placed)
    if len(rows) * len(free_from) > _MAX_AREA:
        return None
    return rows, len(free_from)
