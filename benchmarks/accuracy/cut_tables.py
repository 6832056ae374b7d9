"""How many of the rows that a page end cuts are whole again, and how many whole rows are joined that should not be.

    python -m benchmarks.accuracy.cut_tables [--tables 320] [--seed 11] [FILE…]

Tables are set in lines, and a page ends behind every line of each: between two rows, or within one. What a model would
read on either page is joined as documents are. Half are in English, half in Chinese. The mix was fixed by what 3,696
pages of MinerU's answers showed, and by guess where they say nothing: 1.2 % of the rows have an empty first cell, a
tenth have a first cell of several lines; half of the tables repeat their heading, a sixth has one of two rows; a tenth
have first cells that span rows, a tenth lists in cells, of which half are read as a column more on the second page;
two columns in five hold numbers, and a tenth of their cells nothing. As one page end in three cuts a row, `precision`
is given for that mix.

FILE: JSON in which any text that is a table, as HTML, is cut too; its first column is set in 30 letters, the others
in 20.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from batchocr.data import Block, PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import Piece
from batchocr.documents.assembly.tables import cell_text, table_rows

_ENGLISH = (
    "water rises slowly through porous ground while several measurements of temperature and pressure continue without "
    "interruption at neighbouring stations whose instruments were calibrated against standards in May of that year"
)
_WORDS = _ENGLISH.split()
_HAN = "水从地下慢慢上升温度压力测量站仪器标准校准月份连续记录流量变化说明河流土层深度观测结果报告"
_CUT_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a cell. end: what stands between it and the next: a space, nothing, or the hyphen of a divided word."""

    text: str
    end: str = " "


@dataclass(frozen=True, slots=True)
class Cell:
    lines: tuple[Line, ...]
    rowspan: int = 1
    colspan: int = 1

    def said(self, first: int = 0, end: int | None = None) -> str:
        """What a model reads in some of its lines."""
        lines = self.lines[first:end]
        inner = "".join(line.text + line.end.replace("-", "") for line in lines[:-1])
        return inner + (lines[-1].text + lines[-1].end).strip() if lines else ""


Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class MadeTable:
    heading: tuple[Row, ...]
    rows: tuple[Row, ...]
    is_repeated: bool
    """Whether the second page repeats the heading."""
    has_column_more: bool
    """Whether the second page has the bullets of its lists in a column of their own."""


def set_text(text: str, width: int, dice: random.Random) -> tuple[Line, ...]:
    """The text in lines of at most this many letters; some long words are divided."""
    if re.search("[\u4e00-\u9fff]", text):
        return tuple(Line(text[at : at + width], "") for at in range(0, len(text), width))
    lines: list[Line] = []
    line = ""
    for word in text.split():
        room = width - len(line) - 2
        if line and len(line) + 1 + len(word) > width:
            if len(word) > 9 and 3 <= room <= len(word) - 3 and word.isalpha() and dice.random() < 0.5:
                lines.append(Line(f"{line} {word[:room]}", "-"))
                line = word[room:]
                continue
            lines.append(Line(line))
            line = word
        else:
            line = f"{line} {word}".strip()
    return (*lines, Line(line, ""))


def made_table(dice: random.Random) -> MadeTable:
    is_chinese, num_columns = dice.random() < 0.5, dice.randint(2, 6)

    def prose(most: int) -> str:
        if is_chinese:
            return "".join(dice.choices(_HAN, k=dice.randint(2, 2 * most)))
        return " ".join(dice.choices(_WORDS, k=dice.randint(1, most)))

    has_groups, has_lists = dice.random() < 0.1, dice.random() < 0.1
    kinds = ["number" if dice.random() < 0.4 else "text" for _ in range(num_columns - 1)]
    kinds[-1] = "list" if has_lists else kinds[-1]
    is_repeated = dice.random() < 0.5
    heading: list[Row] = [tuple(Cell(set_text(f"{prose(2)}{at}", 99, dice)) for at in range(num_columns))]
    if num_columns > 2 and dice.random() < 1 / 6:
        upper = [replace(cell, rowspan=2) for cell in heading[0][:-2]]
        heading = [(*upper, Cell(set_text(prose(3), 99, dice), colspan=2)), heading[0][-2:]]
    rows = _made_rows(kinds, has_groups, prose, dice)
    has_column_more = has_lists and is_repeated and len(heading) == 1 and dice.random() < 0.5
    return MadeTable(tuple(heading), tuple(rows), is_repeated, has_column_more)


def _made_rows(kinds: Sequence[str], has_groups: bool, prose: Callable[[int], str], dice: random.Random) -> list[Row]:
    """The rows below a heading. kinds: of the cells behind the first."""
    rows: list[Row] = []
    num_left = 0  # rows of the group that are still to come
    for _ in range(dice.randint(4, 14)):
        key = prose(9) if dice.random() < 0.1 else prose(1)
        key = "" if dice.random() < 0.012 else f"{key}{len(rows)}"
        cells = [_cell(kind, prose, dice) for kind in kinds]
        if has_groups and len(kinds) > 1:
            cells[0] = Cell(set_text(f"{prose(1)}{len(rows)}", 20, dice))
        if num_left == 0:
            num_left = dice.randint(2, 4) if has_groups else 1
            cells.insert(0, Cell(set_text(key, 12, dice) if key else (), rowspan=num_left))
        rows.append(tuple(cells))
        num_left -= 1
    if num_left:
        grouped = next(at for at in reversed(range(len(rows))) if len(rows[at]) > len(kinds))
        first = rows[grouped][0]
        rows[grouped] = (replace(first, rowspan=len(rows) - grouped), *rows[grouped][1:])
    return rows


def _cell(kind: str, prose: Callable[[int], str], dice: random.Random) -> Cell:
    if dice.random() < 0.1:
        return Cell(())
    if kind == "number":
        return Cell((Line(f"{dice.randint(1, 99_999):,}", ""),))
    if kind == "list":
        items = [set_text(prose(8), 20, dice) for _ in range(dice.randint(1, 3))]
        lines = [(*item[:-1], replace(item[-1], end=" ")) for item in items]
        marked = [(Line(f"• {item[0].text}", item[0].end), *item[1:]) for item in lines]
        return Cell(tuple(line for item in marked for line in item))
    return Cell(set_text(prose(12), 20, dice))


def read_table(html: str) -> MadeTable | None:
    """A real table in lines; None if it is none, or has fewer than three rows. Its first row is the heading."""
    table, dice = table_rows(html), random.Random(html)
    if table is None or len(table.rows) < 3 or any(cell.rowspan > 1 for cell in table.rows[0]):
        return None
    rows = [
        tuple(
            Cell(
                set_text(text, 20 if cell.column else 30, dice) if (text := cell_text(cell.html)) else (),
                cell.rowspan,
                cell.colspan,
            )
            for cell in cells
        )
        for cells in table.rows
    ]
    return MadeTable((rows[0],), tuple(rows[1:]), dice.random() < 0.5, has_column_more=False)


@dataclass(frozen=True, slots=True)
class Break:
    """A page end: before row `row`, or within it, behind its line `line` if that is not 0."""

    row: int
    line: int


def breaks_of(table: MadeTable) -> Iterator[Break]:
    for at, row in enumerate(table.rows):
        if at > 0:
            yield Break(at, 0)
        for line in range(1, max(len(cell.lines) for cell in row)):
            yield Break(at, line)


def pages_of(table: MadeTable, end: Break) -> tuple[str, str]:
    """The HTML that a model would read on the two pages."""
    heading = "".join(_row_html(row, _texts(row)) for row in table.heading)
    upper = [(row, _texts(row)) for row in table.rows[: end.row]]
    lower = [(row, _texts(row)) for row in table.rows[end.row + (end.line > 0) :]]
    if end.line:
        row = table.rows[end.row]
        upper.append((row, [cell.said(0, end.line) for cell in row]))
        lower.insert(0, (row, [cell.said(end.line) for cell in row]))
    first = "".join(_row_html(_within(row, len(upper) - at), texts) for at, (row, texts) in enumerate(upper))
    second = "".join(_row_html(row, texts, table.has_column_more) for row, texts in _continued(table, end, lower))
    repeated = heading if table.is_repeated else ""
    if table.is_repeated and table.has_column_more:
        row = (*table.heading[0][:-1], replace(table.heading[0][-1], colspan=2))
        repeated = _row_html(row, _texts(row))
    return f"<table>{heading}{first}</table>", f"<table>{repeated}{second}</table>"


def _continued(table: MadeTable, end: Break, lower: Sequence[tuple[Row, list[str]]]) -> Iterator[tuple[Row, list[str]]]:
    """The rows of the second page: where a first cell comes from the page before, it is an empty one here."""
    begin = next(at for at in reversed(range(end.row + 1)) if _has_first_cell(table, at))
    num_left = begin + table.rows[begin][0].rowspan - end.row
    for at, (row, texts) in enumerate(lower):
        if at == 0 and (begin < end.row or end.line):
            is_own = begin == end.row
            cells, texts = (row[1:], texts[1:]) if is_own else (row, texts)
            key = replace(table.rows[begin][0], rowspan=num_left)
            rest = table.rows[begin][0].said(end.line) if is_own else ""
            yield (key, *cells), [rest, *texts]
        else:
            yield row, texts


def _has_first_cell(table: MadeTable, at: int) -> bool:
    covered = 0
    for row in table.rows[: at + 1]:
        is_first = covered == 0
        covered = (row[0].rowspan if is_first else covered) - 1
    return is_first


def _within(row: Row, num_rows: int) -> Row:
    """The row where its cells reach over no more rows than there are."""
    return tuple(replace(cell, rowspan=min(cell.rowspan, num_rows)) for cell in row)


def _texts(row: Row) -> list[str]:
    return [cell.said() for cell in row]


def _row_html(row: Row, texts: Sequence[str], has_column_more: bool = False) -> str:
    tags = []
    for cell, text in zip(row, texts, strict=True):
        spans = "".join(
            f' {name}span="{count}"' for name, count in (("row", cell.rowspan), ("col", cell.colspan)) if count > 1
        )
        if has_column_more and cell is row[-1]:
            bullet, text = ("•", text.removeprefix("• ")) if text.startswith("• ") else ("", text)
            tags.append(f"<td>{bullet}</td>")
        tags.append(f"<td{spans}>{text}</td>")
    return f"<tr>{''.join(tags)}</tr>"


def fate(table: MadeTable, end: Break) -> str:
    """What became of the row at a page end: `whole`, `joined`, `apart`, or `two tables`."""
    box = (0.1, 0.1, 0.9, 0.9)
    rows = [
        PageResult("a", at, "ok", blocks=(Block("table", box, 0, html),))
        for at, html in enumerate(pages_of(table, end))
    ]
    [first, *others] = [part for part in assemble("a", rows).parts if isinstance(part, Piece)]
    found = table_rows(first.content or "")
    if others or found is None:
        return "two tables"
    num_heading = len(table.heading)
    if len(found.rows) - num_heading > len(table.rows) or end.line == 0:
        return "joined" if len(found.rows) - num_heading < len(table.rows) else "apart"
    read = " ".join(" ".join(cell_text(cell.html) for cell in found.rows[num_heading + end.row]).split())
    return "whole" if read == " ".join(" ".join(_texts(table.rows[end.row])).split()) else "wrong"


def measure(tables: Sequence[MadeTable]) -> dict[str, float]:
    """Shares: of cut rows that are whole, of whole rows that were joined, and of joints that are right, in the mix."""
    cut, whole = Counter[str](), Counter[str]()
    for table in tables:
        for end in breaks_of(table):
            (cut if end.line else whole)[fate(table, end)] += 1
    recall, wrong = cut["whole"] / cut.total(), whole["joined"] / whole.total()
    right = _CUT_SHARE * recall
    return {
        "tables": len(tables),
        "cut_rows": cut.total(),
        "cut_rows_whole": recall,
        "whole_rows": whole.total(),
        "whole_rows_joined": wrong,
        "two_tables": (cut["two tables"] + whole["two tables"]) / (cut.total() + whole.total()),
        "wrong_text": cut["wrong"] / cut.total(),
        "precision": right / ((right + (1 - _CUT_SHARE) * wrong) or 1.0),
    }


def tables_in(value: object) -> Iterator[str]:
    """Every text in a JSON value that is a table."""
    if isinstance(value, str) and value.strip().startswith("<table"):
        yield value.strip()
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tables_in(part)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="JSON with tables as HTML")
    parser.add_argument("--tables", type=int, default=320, help="how many tables are made")
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args(arguments)
    dice = random.Random(options.seed)
    sets = {"made": [made_table(dice) for _ in range(options.tables)]}
    if options.files:
        found = dict.fromkeys(html for path in options.files for html in tables_in(json.loads(path.read_text("utf-8"))))
        sets["real"] = [table for html in found if (table := read_table(html)) is not None]
    for name, tables in sets.items():
        for what, figure in measure(tables).items():
            print(f"{name:5} {what:18} {figure:,.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
