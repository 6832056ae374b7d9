"""A table that goes on over pages: whether the next is its rest, and its rows as one table.

One table in five goes on over a page, and one break in three cuts a row in two (3,696 pages of answers of MinerU's
model, 350 breaks). MinerU asks its model which rows are cut, and glues their cells (`mineru_vl_utils`,
`post_process/cross_page_table.py`). Here a rule says so: a row is the rest of a cut one if it is the first of its part,
but for a heading that is repeated, and its first cell is empty. Against those 350 answers: precision 0.95, recall 0.88,
and most of what differs is the model's mistake. Within a page 1.2 % of the rows have an empty first cell below a filled
one, behind page ends 30 %.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final

from rapidfuzz import fuzz

from batchocr.documents.assembly.sentences import between
from batchocr.documents.assembly.tables import ANY_TAG, MAX_HEADER_ROWS, Cell, TableCells, cell_text

_SAME_CELL: Final = 85.0
"""The least similarity, of 100, of two readings of one header cell."""
_COMPARED: Final = 200
"""Characters of a cell that are compared."""
_NUMBER: Final = re.compile(r"[^\w]*\d[\d\W]*")
"""The text of a cell that holds a number, with its signs."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """What one page has of a table."""

    cells: TableCells
    num_repeated: int = 0
    """Rows at the top of the part that repeat the heading."""
    starts: Sequence[int] = ()
    """The columns in which the cells of the heading begin; if empty, they are those of the first part."""


def next_part(parts: Sequence[TablePart], rest: TableCells) -> TablePart | None:
    """The table `rest` as the part that follows these parts; None if it is another table.

    It is their rest if it repeats the heading, in two cells at least, or has as many columns and no heading of its own,
    where they have one. A repeated heading may reach over other columns: a list in a cell is sometimes read as a column
    more.
    """
    last = parts[-1]
    num_repeated = _num_repeated(parts[0].cells.rows, rest.rows)
    has_heading = num_repeated > 0 and sum(bool(_plain(cell.html)) for cell in rest.rows[0]) > 1
    has_other = not num_repeated and _is_heading(parts[0].cells) and _is_heading(rest)
    if rest.says_more or has_other or not (has_heading or rest.num_columns == last.cells.num_columns):
        return None
    return TablePart(rest, num_repeated, _starts(rest) if num_repeated else last.starts)


def joined(parts: Sequence[TablePart]) -> str:
    """The HTML of a table that several pages have, without the headings that are repeated; cut rows are whole."""
    first = parts[0].cells
    heading = _starts(first)
    columns_of = [_Columns(part.starts or heading, part.cells.num_columns) for part in parts]
    widths = [max(of_parts) for of_parts in zip(*(columns.widths for columns in columns_of), strict=True)]
    edges = [0, *accumulate(widths)]
    rows: list[str] = []
    last: list[Cell] = []
    groups: list[Cell] = []  # empty cells of a row that went into the one before, which reach into the next
    for part, columns in zip(parts, columns_of, strict=True):
        is_stretched = columns.widths != widths
        for index in range(part.num_repeated, len(part.cells.rows)):
            cells = part.cells.rows[index]
            if is_stretched:
                cells = [columns.stretched(cell, edges) for cell in cells]
            is_first = index == part.num_repeated and len(rows) > max(1, part.num_repeated)
            whole = _whole_row(last, cells) if is_first else None
            if whole is not None:
                rows[-1] = _row_html(whole)
                groups = [replace(cell, rowspan=cell.rowspan - 1) for cell in cells if cell.rowspan > 1]
            elif is_stretched or groups:
                rows.append(_row_html(sorted([*groups, *cells], key=lambda cell: cell.column)))
                groups = []
            else:
                start, end = part.cells.row_ends[index]
                rows.append(part.cells.html[start:end])
            last = whole or cells
    return "".join([first.html[: first.row_ends[0][0]], *rows, first.html[first.row_ends[-1][1] :]])


class _Columns:
    """The columns of a table, in groups: the columns below each cell of its heading are one group."""

    def __init__(self, starts: Sequence[int], num_columns: int) -> None:
        self._edges = [*starts, num_columns]
        self.widths = [end - start for start, end in pairwise(self._edges)]

    def stretched(self, cell: Cell, edges: Sequence[int]) -> Cell:
        """The cell where groups begin at these edges, and are no narrower: the last column of each takes the rest."""

        def moved(column: int) -> int:
            group = bisect_right(self._edges, column) - 1
            return edges[group] + column - self._edges[group]

        column = moved(cell.column)
        return replace(cell, column=column, colspan=moved(cell.end_column) - column)


def _is_heading(table: TableCells) -> bool:
    """Whether the table begins with a row of `th` that names several columns."""
    return len(table.rows[0]) > 1 and all(cell.is_header for cell in table.rows[0])


def _starts(table: TableCells) -> list[int]:
    return [cell.column for cell in table.rows[0]]


def _whole_row(last: Sequence[Cell], rest: Sequence[Cell]) -> list[Cell] | None:
    """The last row of a page with what the first row of the next page has of it; None if that is a row of its own.

    It is one unless its first cell is empty and that of the last row is not. What comes from rows above, or reaches
    into rows below, names a group of rows and does not count as the first. Each cell has to lie within one of the last
    row. A number below a number was not cut.
    """
    columns = [cell.column for cell in last]
    key = next((cell.column for cell in rest if cell.rowspan == 1 and last and cell.column >= columns[0]), -1)
    filled = [cell for cell in rest if cell_text(cell.html)]
    if key not in columns or not cell_text(last[columns.index(key)].html):
        return None
    if not filled or filled[0].column <= key or any(cell.rowspan > 1 for cell in filled):
        return None
    whole, num_continued = list(last), 0
    for cell in filled:
        at = bisect_right(columns, cell.column) - 1
        before = whole[at]
        if cell.end_column > before.end_column:
            return None
        text = cell_text(before.html)
        if _NUMBER.fullmatch(text) and _NUMBER.fullmatch(cell_text(cell.html)):
            return None
        num_continued += bool(text)
        start, space = between(before.html.rstrip(), cell.html.lstrip()) if text else ("", "")
        whole[at] = replace(before, html=f"{start}{space}{cell.html.strip()}")
    return whole if num_continued else None


def _row_html(cells: Sequence[Cell]) -> str:
    return f"<tr>{''.join(cell.tag(cell.rowspan) for cell in cells)}</tr>"


def _num_repeated(first: Sequence[Sequence[Cell]], second: Sequence[Sequence[Cell]]) -> int:
    """How many rows at the top of the second table are those at the top of the first."""
    reach = whole = 0
    pairs = zip(first[:MAX_HEADER_ROWS], second[: len(second) - 1], strict=False)
    for index, (one, other) in enumerate(pairs):
        if not _same_row(one, other):
            break
        reach = max([reach, *(cell.end_row - 1 for cell in other)])
        if reach == index:  # no cell reaches into the next row
            whole = index + 1
    return whole


def _same_row(one: Sequence[Cell], other: Sequence[Cell]) -> bool:
    """Whether two rows have the same cells, but for what was misread and for their widths; not if they have no text."""
    texts = [(_plain(a.html), _plain(b.html)) for a, b in zip(one, other, strict=False)]
    return (
        [cell.rowspan for cell in one] == [cell.rowspan for cell in other]
        and any(text for text, _ in texts)
        and all(fuzz.ratio(text, of_other) >= _SAME_CELL for text, of_other in texts)
    )


def _plain(html: str) -> str:
    return " ".join(ANY_TAG.sub(" ", html[: 4 * _COMPARED]).split())[:_COMPARED].casefold()
