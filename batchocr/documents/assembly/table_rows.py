"""Tables that continue on the next page: their rows, their columns, and what of a header is repeated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rapidfuzz import fuzz

_TAG: Final = re.compile(r"<(/?)(table|tr|td|th)\b([^<>]*)>", re.IGNORECASE)
_ANY_TAG: Final = re.compile(r"<[^<>]*>")
_SPAN: Final = re.compile(r"\b(row|col)span\s*=\s*[\"']?(\d{1,4})(?!\d)", re.IGNORECASE)
_PICTURE: Final = re.compile(r"<img\b", re.IGNORECASE)

_MAX_HEADER_ROWS: Final = 5
_SAME_CELL: Final = 85.0
"""Similarity, of 100, of two readings of one header cell."""
_COMPARED: Final = 200
"""Characters of a cell that are compared."""


@dataclass(frozen=True, slots=True)
class RowCell:
    """A cell of a table. text: its first characters, without tags."""

    text: str
    rowspan: int
    colspan: int


@dataclass(slots=True)
class TableRows:
    """A table in HTML, taken apart. before, after: what surrounds its rows. cells: of each row."""

    before: str
    rows: list[str]
    after: str
    cells: list[list[RowCell]]
    num_columns: int

    @property
    def says_more(self) -> bool:
        """Whether there is text beside its rows, as of a caption."""
        return bool(_ANY_TAG.sub("", self.before + self.after).strip())

    def add(self, other: TableRows) -> None:
        """Append the rows of another, without the header that it repeats."""
        surplus = _num_repeated(self.cells, other.cells)
        self.rows += other.rows[surplus:]

    def html(self) -> str:
        """The table as HTML."""
        return "".join([self.before, *self.rows, self.after])


def table_rows(html: str) -> TableRows | None:
    """The table taken apart; None if it is none, if cells reach beyond its end, or if more than rows are in it.

    One with pictures is none either: they are named by their place on the page, and a table knows one page only.
    """
    if html[:6].lower() != "<table" or _PICTURE.search(html):
        return None
    found = _find_rows(html)
    num_columns = _num_columns([cells for _, _, cells in found]) if found else None
    if not found or num_columns is None:
        return None
    return TableRows(
        before=html[: found[0][0]],
        rows=[html[start:end] for start, end, _ in found],
        after=html[found[-1][1] :],
        cells=[cells for _, _, cells in found],
        num_columns=num_columns,
    )


def _find_rows(html: str) -> list[tuple[int, int, list[RowCell]]] | None:
    """Where each row begins and ends, and its cells; None if something else stands among them, or one is not closed."""
    rows: list[tuple[int, int, list[RowCell]]] = []
    cells: list[RowCell] = []
    row_start = cell_start = -1
    spans = (1, 1)
    num_tables = 0
    for tag in _TAG.finditer(html):
        name = tag[1].lower() + tag[2].lower()
        in_row, in_cell = row_start >= 0, cell_start >= 0
        if name in ("table", "/table"):
            num_tables += name == "table"
        elif name == "tr" and not in_row and not (rows and html[rows[-1][1] : tag.start()].strip()):
            row_start, cells = tag.start(), []
        elif name == "/tr" and in_row and not in_cell:
            rows.append((row_start, tag.end(), cells))
            row_start = -1
        elif name in ("td", "th") and in_row and not in_cell:
            cell_start, spans = tag.end(), _spans(tag[3])
        elif name in ("/td", "/th") and in_cell:
            cells.append(RowCell(_plain(html[cell_start : tag.start()]), *spans))
            cell_start = -1
        else:
            return None
    return rows if num_tables == 1 and row_start < 0 else None


def _spans(attributes: str) -> tuple[int, int]:
    """How many rows and columns a cell with these attributes covers."""
    spans = {name.lower(): max(1, int(number)) for name, number in _SPAN.findall(attributes)}
    return spans.get("row", 1), spans.get("col", 1)


def _plain(html: str) -> str:
    return " ".join(_ANY_TAG.sub(" ", html[: 4 * _COMPARED]).split())[:_COMPARED].casefold()


def _num_columns(cells: Sequence[Sequence[RowCell]]) -> int | None:
    """How many columns the widest row has, with cells that reach into it from above; None if one reaches too far."""
    change = [0] * (len(cells) + 1)
    from_above = widest = 0
    for index, row in enumerate(cells):
        from_above += change[index]
        widest = max(widest, from_above + sum(cell.colspan for cell in row))
        for cell in row:
            if cell.rowspan > 1:
                if index + cell.rowspan > len(cells):
                    return None
                change[index + 1] += cell.colspan
                change[index + cell.rowspan] -= cell.colspan
    return widest


def _num_repeated(first: Sequence[Sequence[RowCell]], second: Sequence[Sequence[RowCell]]) -> int:
    """How many rows at the top of the second table are those at the top of the first."""
    reach = whole = 0
    pairs = zip(first[:_MAX_HEADER_ROWS], second[: len(second) - 1], strict=False)
    for index, (one, other) in enumerate(pairs):
        if not _same_row(one, other):
            break
        reach = max(reach, index + max(cell.rowspan for cell in other))
        if reach == index + 1:  # no cell reaches into the next row
            whole = reach
    return whole


def _same_row(one: Sequence[RowCell], other: Sequence[RowCell]) -> bool:
    return (
        len(one) == len(other)
        and any(cell.text for cell in one)
        and all(
            (a.rowspan, a.colspan) == (b.rowspan, b.colspan) and fuzz.ratio(a.text, b.text) >= _SAME_CELL
            for a, b in zip(one, other, strict=True)
        )
    )
