"""Tables in OTSL, in which models write them, as HTML.

Source: "Optimized Table Tokenization for Table Structure Recognition", 2023. `<fcel>` is a cell, `<ecel>` an empty one;
`<lcel>` belongs to the cell at its left, `<ucel>` to the one above, `<xcel>` to both; `<nl>` ends a row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import product
from typing import Final, NamedTuple

from batchocr.pages.protocol.formulas import with_marks

_TAG, _CELL = re.compile(r"<([efulx])cel>"), re.compile(r"<[ef]cel>")
_MOST_CELLS: Final = 100_000
"""The most cells of a table: one row of an answer may be so long that all others, made as long, would fill the
memory."""


class _Cell(NamedTuple):
    kind: str
    """The first letter of the cell's tag; `f` for all tags that have text."""
    text: str = ""


_EMPTY: Final = _Cell("e")


def table_html(otsl: str) -> str:
    """The table in HTML, its formulas marked; '' if it is none."""
    rows = [cells for line in otsl.split("<nl>") if (cells := _cells(line))]
    if not _CELL.search(otsl) or (width := _width(rows)) * len(rows) > _MOST_CELLS:
        return ""
    grid = [[*row[:width], *[_EMPTY] * (width - len(row))] for row in rows]
    columns = list(zip(*grid, strict=True))
    covered: set[tuple[int, int]] = set()
    html = []
    for down, row in enumerate(grid):
        html.append("<tr>")
        for across, cell in enumerate(row):
            if cell.kind in "ef":
                num_columns, num_rows = _span(row, across, "lx"), _span(columns[across], down, "ux")
                covered.update(product(range(down, down + num_rows), range(across, across + num_columns)))
                html.append(_cell_html(cell.text, num_rows, num_columns))
            elif (down, across) not in covered:
                html.append("<td></td>")
        html.append("</tr>")
    return f"<table>{''.join(html)}</table>"


def _cells(line: str) -> list[_Cell]:
    """The cells of a row. Text where no cell should have any, as before the first one, is a cell too."""
    before, *parts = _TAG.split(line)
    cells = [_Cell("f", before.strip())] if before.strip() else []
    texts = [text.strip() for text in parts[1::2]]
    return cells + [_Cell("f" if text else kind, text) for kind, text in zip(parts[::2], texts, strict=True)]


def _width(rows: Sequence[Sequence[_Cell]]) -> int:
    """How many cells most rows have, so that no cell with text is cut off."""
    lengths = sorted(map(len, rows))
    full = max((end for row in rows for end, cell in enumerate(row, start=1) if cell.kind == "f"), default=0)
    return max(full, lengths[(len(rows) - 1) // 2])


def _span(cells: Sequence[_Cell], at: int, parts: str) -> int:
    """How many cells a cell takes: itself, and the cells behind it that are part of it."""
    end = at + 1
    while end < len(cells) and cells[end].kind in parts:
        end += 1
    return end - at


def _cell_html(text: str, num_rows: int, num_columns: int) -> str:
    spans = (("rowspan", num_rows), ("colspan", num_columns))
    attributes = "".join(f' {name}="{number}"' for name, number in spans if number > 1)
    return f"<td{attributes}>{escape(with_marks(text))}</td>"
