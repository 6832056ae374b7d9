"""Texts and tables cut into parts of a size, where they may be cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import regex

from batchocr.data import letters_end
from batchocr.documents.assembly.sentences import ABBREVIATION
from batchocr.documents.assembly.tables import Cell, TableCells
from batchocr.pages.protocol.markdown import INLINE_FORMULA

_LINE_END: Final = re.compile(r"\n+")
_SENTENCE_END: Final = regex.compile(
    r"(?:(?<!\b[A-Z])[.…]|\p{Sentence_Break=STerm})[)\]\"'”’»]*\s+(?=[^a-z\s])|[。！？；][」』）”’]*\s*"
)
_WORD_END: Final = re.compile(r"\s+")
_LONGEST_ABBREVIATION: Final = 12

_LONGEST_RENDERED: Final = 8
"""The most characters of Markdown that one character of text becomes; `<` becomes `&lt;`."""
_FRAME: Final = 80
"""The most characters of Markdown around a text: fences, and the line above a table that could not be parsed."""


@dataclass(frozen=True, slots=True)
class CutText:
    """A part of a piece as Markdown."""

    text: str
    start: float
    """Where the part begins, as a share of the piece."""
    end: float
    """Where the part ends, as a share of the piece."""


def cut_text(text: str, render: Callable[[str], str], first_room: int, room: int) -> Iterator[CutText]:
    """Yield the text in parts that are no longer than `first_room`, the first, and `room` once rendered.

    It is cut at the ends of lines; where a line is too long, at those of sentences; then between words; then anywhere,
    but in a formula.
    """
    atoms = _atoms(text, render, room)
    if len(render(atoms[0])) > first_room:
        atoms[:1] = _atoms(atoms[0], render, first_room)
    position = index = 0
    while index < len(atoms):
        end, length = index, 0
        while end < len(atoms) and (end == index or length + len(atoms[end]) <= first_room):
            length += len(atoms[end])
            end += 1
        while end - index > 1 and len(render("".join(atoms[index:end]))) > first_room:
            end -= max(1, (end - index) // 8)
        raw = "".join(atoms[index:end])
        rendered = render(raw)
        if rendered:
            yield CutText(rendered, position / len(text), (position + len(raw)) / len(text))
        position += len(raw)
        index, first_room = end, room


def _atoms(text: str, render: Callable[[str], str], room: int) -> list[str]:
    """The text in its smallest parts, which together are the whole text."""

    def fits(part: str) -> bool:
        return _LONGEST_RENDERED * len(part) + _FRAME <= room or len(render(part)) <= room

    parts = [text]
    for pattern in (_LINE_END, _SENTENCE_END, _WORD_END):
        parts = [smaller for part in parts for smaller in ([part] if fits(part) else _split(part, pattern))]
    return [smaller for part in parts for smaller in ([part] if fits(part) else _hacked(part, room))]


def _split(text: str, pattern: re.Pattern[str]) -> list[str]:
    """The text cut behind each match that is not within a formula."""
    ends: list[int] = [0]
    for is_formula, start, end in _runs(text):
        if not is_formula:
            ends += [
                match.end()
                for match in pattern.finditer(text, start, end)
                if pattern is not _SENTENCE_END
                or not ABBREVIATION.search(text[max(0, match.start() - _LONGEST_ABBREVIATION) : match.end()].rstrip())
            ]
    return [text[a:b] for a, b in zip(ends, [*ends[1:], len(text)], strict=True) if a < b]


def _hacked(text: str, room: int) -> list[str]:
    """The text cut anywhere but in formulas and letters, into parts that fit even if every character is escaped."""
    size = max(1, room // _LONGEST_RENDERED)
    parts = []
    for is_formula, start, end in _runs(text):
        while start < end:
            at = end if is_formula or start + size >= end else letters_end(text, start + size, start)
            parts.append(text[start:at])
            start = at
    return parts


def _runs(text: str) -> Iterator[tuple[bool, int, int]]:
    """Yield the text's formulas and what is between them: whether it is a formula, where it begins and ends."""
    last = 0
    for formula in INLINE_FORMULA.finditer(text):
        yield False, last, formula.start()
        yield True, formula.start(), formula.end()
        last = formula.end()
    yield False, last, len(text)


def cut_table(table: TableCells, first_room: int, room: int) -> Iterator[CutText]:
    """Yield the table in parts, each a table with the header; none is longer than `first_room`, the first, and `room`,
    unless a single row is, with the table's caption in the first part.

    A cell that reaches over a cut is in both parts; in the later ones it is empty if it is long.
    """
    num_header = table.num_header_rows
    header = "".join(_row(table.rows[row]) for row in range(num_header))
    if len(header) > room // 2:
        num_header, header = 0, ""
    lengths = [len(_row(row)) for row in table.rows]
    frame = len("<table></table>") + len(header)
    start = num_header
    carried: list[Cell] = []
    while start < len(lengths):
        first_row = sorted([*carried, *table.rows[start]], key=lambda cell: cell.column)
        lead, caption = (table.before, table.caption) if start == num_header else ("", "")
        length = len(lead) + len(caption) + frame + len(_row(first_row))
        end = start + 1
        while end < len(lengths) and length + lengths[end] <= first_room:
            length += lengths[end]
            end += 1
        rows = "".join(_row(row, end) for row in [first_row, *table.rows[start + 1 : end]])
        tail = table.after if end == len(lengths) else ""
        first = 0 if start == num_header else start
        yield CutText(f"{lead}<table>{caption}{header}{rows}</table>{tail}", first / len(lengths), end / len(lengths))
        above = [*carried, *(cell for row in table.rows[start:end] for cell in row)]
        carried = [_carried(cell, end, room // 4) for cell in above if cell.end_row > end]
        start, first_room = end, room


def _carried(cell: Cell, row: int, longest: int) -> Cell:
    """The part of the cell from this row on; without its content if that is longer than `longest`."""
    html = cell.html if len(cell.html) <= longest else ""
    return Cell(row, cell.column, cell.end_row - row, cell.colspan, html, cell.is_header)


def _row(cells: Sequence[Cell], end_row: int | None = None) -> str:
    """The row as HTML. end_row: where this part of the table ends, if the table is cut."""
    return f"<tr>{''.join(cell.tag(min(cell.end_row, end_row or cell.end_row) - cell.row) for cell in cells)}</tr>"
