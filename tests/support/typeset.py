"""Documents set by a script: a table's rows that hold exactly what was set, so that no model errs, and the outline.

What is set is the truth. Blocks are cut where columns and pages end, as a layout sees them; lines within a block are
one text, as the model reads them; a word that the end of a block cut keeps its hyphen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pymupdf

from batchocr.data import Block, OutlineEntry, PageResult

WIDTH, HEIGHT, MARGIN, GUTTER = 595.0, 842.0, 60.0, 20.0
DPI = 144
_PITCH = 1.25
_BODY_SIZE = 10.0
_NOTE_PITCH = 12.0
_DIVIDED = "\u00ad"
_FONTS = {name: pymupdf.Font(name) for name in ("tiro", "tibo")}


@dataclass(frozen=True)
class Heading:
    """level: in the outline; None if it is not there."""

    text: str
    size: float = 14.0
    level: int | None = None


@dataclass(frozen=True)
class Paragraph:
    """note: at the foot of the page on which it begins."""

    text: str
    note: str | None = None


@dataclass(frozen=True)
class Items:
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    rows: Sequence[Sequence[str]]
    caption: str | None = None
    note: str | None = None
    repeats_header: bool = True


@dataclass(frozen=True)
class Figure:
    height: float = 120.0
    caption: str | None = None
    note: str | None = None


Element = Heading | Paragraph | Items | Table | Figure


@dataclass(frozen=True)
class Typeset:
    """What was set. cuts: for each text that a page end cut, what is before and after it."""

    rows: list[PageResult]
    outline: list[OutlineEntry]
    cuts: list[tuple[str, str]]

    def pdf(self) -> bytes:
        """A PDF of as many empty pages, with the outline."""
        with pymupdf.open() as document:
            for _ in self.rows:
                document.new_page(width=WIDTH, height=HEIGHT)
            document.set_toc([_toc_entry(entry) for entry in self.outline])
            return document.tobytes()


def _toc_entry(entry: OutlineEntry) -> list[object]:
    to = pymupdf.Point(MARGIN, (entry.y or 0) * HEIGHT)
    return [entry.level, entry.title, entry.page_index + 1, {"kind": pymupdf.LINK_GOTO, "to": to}]


def typeset(elements: Sequence[Element], *, num_columns: int = 1) -> Typeset:
    """Set the elements in columns, on as many pages as they need."""
    setter = _Setter(num_columns)
    for element in elements:
        setter.set(element)
    return setter.finished()


def html(rows: Sequence[Sequence[str]]) -> str:
    """A table as the model writes it."""
    return f"<table>{''.join('<tr>' + ''.join(f'<td>{c}</td>' for c in row) + '</tr>' for row in rows)}</table>"


def _width(text: str, font: str) -> float:
    """In em."""
    return sum(_advance(letter, font) for letter in text)


@cache
def _advance(letter: str, font: str) -> float:
    return float(_FONTS[font].glyph_advance(ord(letter)))


class _Setter:
    def __init__(self, num_columns: int) -> None:
        self._blocks: list[list[Block]] = []
        self._notes: list[list[str]] = []
        self._outline: list[OutlineEntry] = []
        self._cuts: list[tuple[str, str]] = []
        self._num_columns = num_columns
        self._column_width = (WIDTH - 2 * MARGIN - GUTTER * (num_columns - 1)) / num_columns
        self._new_page()

    def set(self, element: Element) -> None:
        match element:
            case Heading():
                self._heading(element)
            case Paragraph():
                if element.note:
                    self._need(60)
                    self._notes[-1].append(element.note)
                    self._bottom -= _NOTE_PITCH
                self._text(element.text, "text")
            case Items():
                self._items(element.items)
            case Table():
                self._table(element)
            case Figure():
                self._need(element.height + 60)
                self._box(element.height, "image", None)
                self._belonging(element.caption, "image_caption")
                self._belonging(element.note, "image_footnote")
        self._y += 8

    def finished(self) -> Typeset:
        rows = []
        for index, (blocks, notes) in enumerate(zip(self._blocks, self._notes, strict=True)):
            frame = [
                self._block("header", "A running title", (MARGIN, 30, 200, 40)),
                *blocks,
                *[self._note_block(note, len(notes) - at) for at, note in enumerate(notes)],
                self._block("page_number", str(index + 1), (290, 810, 300, 820)),
            ]
            size = (int(WIDTH * DPI / 72), int(HEIGHT * DPI / 72))
            rows.append(
                PageResult(
                    "set.pdf", index, "ok", "0" * 64, len(self._blocks), *size, DPI, markdown="", blocks=tuple(frame)
                )
            )
        return Typeset(rows, self._outline, self._cuts)

    def _heading(self, heading: Heading) -> None:
        self._need(heading.size * 4 + 30)
        if heading.level is not None:
            self._outline.append(OutlineEntry(heading.level, heading.text, len(self._blocks) - 1, self._y / HEIGHT))
        self._text(heading.text, "title", font="tibo", size=heading.size)

    def _text(self, text: str, type: str, *, font: str = "tiro", size: float = _BODY_SIZE) -> None:
        """Set lines of text; a new block in each column."""
        lines = self._lines(text, font, size)
        before: str | None = None
        while lines:
            page = len(self._blocks)
            self._need(size * _PITCH)
            is_new_page = len(self._blocks) != page
            room = int((self._bottom - self._y) / (size * _PITCH))
            here, lines = lines[:room], lines[room:]
            block = self._set_lines(here, type, font, size, merge_prev=before is not None and not is_new_page)
            if is_new_page and before is not None:
                self._cuts.append((before, block.content or ""))
            before = block.content
            self._blocks[-1].append(block)

    def _items(self, items: Sequence[str]) -> None:
        """Set a list: in each column a box without text around its items."""
        size = _BODY_SIZE
        placed: list[Block] = []
        for item in items:
            lines = self._lines(item, "tiro", size)
            while lines:
                room = int((self._bottom - self._y) / (size * _PITCH))
                if room < 1:
                    self._close_list(placed)
                    placed = []
                    self._new_column()
                    continue
                here, lines = lines[:room], lines[room:]
                placed.append(self._set_lines(here, "text", "tiro", size, merge_prev=False))
        self._close_list(placed)

    def _close_list(self, items: Sequence[Block]) -> None:
        if items:
            x0, y0, x1, y1 = zip(*(item.bbox for item in items), strict=True)
            around = (min(x0), min(y0), max(x1), max(y1))
            self._blocks[-1] += [Block("list", around, 0, None), *items]

    def _table(self, table: Table) -> None:
        header, *rows = table.rows
        self._need(80)
        self._belonging(table.caption, "table_caption")
        here = [header]
        height = 14.0
        for row in rows:
            if self._y + height * (len(here) + 1) > self._bottom:
                self._box(height * len(here), "table", html(here))
                self._new_column()
                here = [header] if table.repeats_header else []
            here.append(row)
        self._box(height * len(here), "table", html(here))
        self._belonging(table.note, "table_footnote")

    def _belonging(self, text: str | None, type: str) -> None:
        if text is not None:
            self._text(text, type, size=9.0)
            self._y += 3

    def _note_block(self, text: str, from_below: int) -> Block:
        top = HEIGHT - MARGIN - _NOTE_PITCH * from_below + 4
        return self._block("page_footnote", text, (MARGIN, top, WIDTH - MARGIN, top + _NOTE_PITCH - 2))

    def _lines(self, text: str, font: str, size: float) -> list[str]:
        """The text in lines; a word that does not fit is divided, if it is long."""
        room = self._column_width / size
        lines, line, used = [], "", 0.0
        for word in text.split(" "):
            half, width = len(word) // 2, _width(f" {word}", font)
            if used + width <= room or not line:
                line, used = f"{line} {word}".strip(), used + width
            elif len(word) > 8 and word.isalpha() and used + _width(f" {word[:half]}-", font) <= room:
                lines.append(f"{line} {word[:half]}{_DIVIDED}")
                line, used = word[half:], _width(word[half:], font)
            else:
                lines.append(line)
                line, used = word, _width(word, font)
        return [*lines, line]

    def _set_lines(self, lines: Sequence[str], type: str, font: str, size: float, *, merge_prev: bool) -> Block:
        top, right = self._y, self._x
        for line in lines:
            right = max(right, self._x + size * _width(line.replace(_DIVIDED, "-"), font))
            self._y += size * _PITCH
        text = " ".join(lines).replace(f"{_DIVIDED} ", "").replace(_DIVIDED, "-")
        bottom = self._y - size * (_PITCH - 1.15)
        return self._block(type, text, (self._x, top, right, bottom), merge_prev=merge_prev)

    def _box(self, height: float, type: str, content: str | None) -> None:
        box = (self._x, self._y, self._x + self._column_width, self._y + height)
        self._blocks[-1].append(self._block(type, content, box))
        self._y += height + 3

    def _block(
        self, type: str, content: str | None, box: tuple[float, float, float, float], *, merge_prev: bool = False
    ) -> Block:
        x0, y0, x1, y1 = box
        return Block(type, (x0 / WIDTH, y0 / HEIGHT, x1 / WIDTH, y1 / HEIGHT), 0, content, merge_prev)

    def _need(self, height: float) -> None:
        if self._y + height > self._bottom:
            self._new_column()

    def _new_column(self) -> None:
        self._column += 1
        if self._column == self._num_columns:
            self._new_page()
        else:
            self._x += self._column_width + GUTTER
            self._y = MARGIN

    def _new_page(self) -> None:
        self._blocks.append([])
        self._notes.append([])
        self._column, self._x, self._y, self._bottom = 0, MARGIN, MARGIN, HEIGHT - MARGIN
