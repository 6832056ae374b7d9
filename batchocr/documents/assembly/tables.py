"""Tables in HTML: the cells, each where it stands in the grid."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from html import unescape
from itertools import pairwise
from typing import Final

from batchocr.pages.protocol.sanitize import harmless_characters, table_structure

_TAG: Final = re.compile(r"<(/?)([a-z]+)([^<>]*)>", re.IGNORECASE)
ANY_TAG: Final = re.compile(r"<[^<>]*>")
RAISED: Final = re.compile(r"</?su[bp]>")
_SPAN: Final = re.compile(r"\b(row|col)span\s*=\s*[\"']?(\d{1,9})", re.IGNORECASE)
_PICTURE: Final = re.compile(r"<img\b", re.IGNORECASE)
_MAX_AREA: Final = 1_000_000
"""The most cells of a table's grid. Spans cost a model nothing to write; a table of a full page has a few hundred."""

MAX_HEADER_ROWS: Final = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table."""

    row: int
    """The row in which the cell begins."""
    column: int
    """The column in which the cell begins."""
    rowspan: int
    colspan: int
    html: str
    """The HTML in the cell."""
    is_header: bool
    """Whether the cell is a `th`."""

    @property
    def end_row(self) -> int:
        return self.row + self.rowspan

    @property
    def end_column(self) -> int:
        return self.column + self.colspan

    def tag(self, rowspan: int) -> str:
        """The cell as HTML, over so many rows."""
        name = "th" if self.is_header else "td"
        colspan_attribute = f' colspan="{self.colspan}"' if self.colspan > 1 else ""
        rowspan_attribute = f' rowspan="{rowspan}"' if rowspan > 1 else ""
        return f"<{name}{colspan_attribute}{rowspan_attribute}>{self.html}</{name}>"


@dataclass(frozen=True, slots=True)
class TableCells:
    """A table taken apart."""

    html: str
    """The whole text, with what stands around the table."""
    before: str
    """The text before the table."""
    caption: str
    """The table's `caption`, with the tags; empty if there is none."""
    rows: list[list[Cell]]
    """The cells that begin in each row."""
    num_columns: int
    after: str
    """The text behind the table."""
    row_ends: list[tuple[int, int]]
    """Where each row begins and ends in the HTML."""
    overhangs: bool
    """Whether a cell claims more rows than there are below it."""

    @property
    def says_more(self) -> bool:
        """Whether there is text beside the table's rows, as of a caption."""
        return bool(ANY_TAG.sub("", self.html[: self.row_ends[0][0]] + self.html[self.row_ends[-1][1] :]).strip())

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
        return end if end <= MAX_HEADER_ROWS and end < len(self.rows) else 0


def clean_table(html: str) -> TableCells | None:
    """The table taken apart, with none but the tags of a table; None if it is none."""
    return table_cells(harmless_characters(table_structure(html))) if html.startswith("<table") else None


def cell_text(html: str) -> str:
    """The text of a cell or a caption, on one line."""
    return " ".join(unescape(ANY_TAG.sub(" ", RAISED.sub("", html))).split())


def table_cells(html: str) -> TableCells | None:
    """The table taken apart; None if there is not just one, or if its grid is beyond all bounds.

    A table within a cell is part of the cell. Only of sanitised HTML, in which every tag is closed, no text is lost.
    """
    rows: list[list[Cell]] = []
    row_ends: list[tuple[int, int]] = []
    depth = cell_start = caption_start = 0
    start = end = -1
    opening = caption = ""
    for tag in _TAG.finditer(html):
        closes, name = bool(tag[1]), tag[2].lower()
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
            row_ends.append((tag.start(), len(html)))
        elif depth == 1 and name == "tr" and rows:
            row_ends[-1] = (row_ends[-1][0], tag.end())
        elif depth == 1 and name in ("td", "th") and not closes:
            cell_start, opening = tag.end(), tag[0]
        elif depth == 1 and name in ("td", "th") and rows:
            rows[-1].append(_cell(len(rows) - 1, opening, html[cell_start : tag.start()]))
    if not rows or end < 0:
        return None
    placed = _placed(rows)
    if placed is None:
        return None
    overhangs = any(cell.end_row > len(rows) for cells in rows for cell in cells)
    return TableCells(html, html[:start], caption, *placed, html[end:], row_ends, overhangs)


def _cell(row: int, opening: str, html: str) -> Cell:
    """A cell as it is written, before its column is known."""
    spans = {name.lower(): min(1000, max(1, int(number))) for name, number in _SPAN.findall(opening)}
    return Cell(row, 0, spans.get("row", 1), spans.get("col", 1), html, opening[:3].lower() == "<th")


def _placed(read: list[list[Cell]]) -> tuple[list[list[Cell]], int] | None:
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
            placed.append(replace(cell, column=column, rowspan=rowspan))
            column = end
        rows.append(placed)
    if len(rows) * len(free_from) > _MAX_AREA:
        return None
    return rows, len(free_from)


def table_rows(html: str) -> TableCells | None:
    """The table taken apart; None if the HTML is no table, if cells reach beyond the table's end, or something stands
    between its rows.

    One with pictures is none either: they are named by their place on the page, and a table knows one page only.
    """
    table = None if html[:6].lower() != "<table" or _PICTURE.search(html) else table_cells(html)
    if table is None or table.overhangs:
        return None
    between = (html[end:start] for (_, end), (start, _) in pairwise(table.row_ends))
    return None if any(map(str.strip, between)) else table
