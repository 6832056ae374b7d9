"""How often the levels of headings are those of the PDF's own outline, when the outline is not given; and when it is.

    python -m benchmarks.headings FOLDER

Of every PDF in FOLDER that has an outline, the lines of its text layer that are large or bold become `title` blocks, as
a perfect layout and a perfect reader would give them; those that are an entry of the outline are compared with it. The
boxes are in thousandths of the page, as a model gives them: around the lines, or around their ink. A level that is
not known from the outline may be off by the same number in all of a document: whether a document's title counts as its
first level is a matter of taste.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pymupdf

from batchocr.data import Block, OutlineEntry, PageResult
from batchocr.documents.assembly.assemble import assemble
from batchocr.documents.assembly.document import Piece
from batchocr.pages.input.outline import read_outline
from benchmarks.record import Record, benchmark_parser

_DPI = 144
_LARGE = 1.08
"""Of the letters of most of the text: what is larger is a heading."""
_MARGIN = 0.06
"""Share of the page's height at its top and bottom that holds no headings, but running titles."""
_MAX_LINES = 4
_LEAST_ENTRIES = 5


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    box: tuple[float, float, float, float]
    size: float
    is_bold: bool

    @property
    def look(self) -> tuple[float, bool]:
        return round(self.size, 1), self.is_bold


@dataclass(frozen=True, slots=True)
class Headings:
    """Of a document. rows: with its headings as blocks. level_of: by (page, block), of those in the outline."""

    rows: list[PageResult]
    outline: list[OutlineEntry]
    level_of: dict[tuple[int, int], int]


def find_headings(document: pymupdf.Document, *, ink: bool) -> Headings:
    """The document's headings as a perfect reader would give them. ink: boxes around the ink, not the lines."""
    outline = read_outline(document)
    entries = defaultdict(list)
    for entry in outline:
        entries[entry.page_index].append(entry)
    titles = {_plain(entry.title) for entry in outline}  # large, but elsewhere: in the table of contents, an `index`
    pages = [list(_lines(page)) for page in document]
    usual = Counter[float]()
    for line in (line for lines in pages for line in lines):
        usual[round(line.size, 1)] += len(line.text)
    body = usual.most_common(1)[0][0] if usual else 10.0
    rows, level_of = [], {}
    for index, (page, lines) in enumerate(zip(document, pages, strict=True)):
        blocks, left = [], list(entries[index])
        for text, box, is_large in _groups(lines, body, page.rect):
            same = next((entry for entry in left if _is_named(text, entry.title)), None)
            if same is not None:
                left.remove(same)
                level_of[index, len(blocks)] = same.level
            elif not is_large or _plain(text).strip("0123456789") in titles:
                continue
            blocks.append(Block("title", _thousandths(_ink_box(page, box) if ink else box, page.rect), 0, text))
        width, height = (round(side * _DPI / 72) for side in (page.rect.width, page.rect.height))
        rows.append(
            PageResult("a", index, "ok", "0", len(document), width, height, _DPI, markdown="", blocks=tuple(blocks))
        )
    return Headings(rows, outline, level_of)


def _lines(page: pymupdf.Page) -> Iterator[Line]:
    for block in page.get_text("dict")["blocks"]:
        for line in block.get("lines", ()):
            spans = [span for span in line["spans"] if span["text"].strip()]
            text = " ".join("".join(span["text"] for span in line["spans"]).split())
            if spans and line["dir"] == (1.0, 0.0):
                size = max(span["size"] for span in spans)
                is_bold = all(span["flags"] & pymupdf.TEXT_FONT_BOLD for span in spans)
                yield Line(text, tuple(line["bbox"]), size, is_bold)


def _groups(
    lines: Sequence[Line], body: float, rect: pymupdf.Rect
) -> Iterator[tuple[str, tuple[float, float, float, float], bool]]:
    """What may be a heading among a page's lines, of one look, below each other or side by side: the text, the box, and
    whether it looks like one."""
    groups: list[list[Line]] = []
    for _, alike in groupby(lines, key=lambda line: line.look):
        group: list[Line] = []
        for line in alike:
            if group and not _follows(line, group[-1]):
                groups.append(group)
                group = []
            group.append(line)
        groups.append(group)
    for group in groups:
        top, bottom = group[0].box[1] / rect.height, group[-1].box[3] / rect.height
        text = " ".join(line.text for line in group)
        if len(group) <= _MAX_LINES and _MARGIN < top < bottom < 1 - _MARGIN and _plain(text):
            boxes = np.array([line.box for line in group])
            x0, y0 = boxes[:, :2].min(axis=0)
            x1, y1 = boxes[:, 2:].max(axis=0)
            is_large = group[0].size > _LARGE * body or (group[0].is_bold and group[0].size > 0.95 * body)
            yield text, (float(x0), float(y0), float(x1), float(y1)), is_large


def _follows(line: Line, before: Line) -> bool:
    """Whether a line is the next of a heading, or the rest of its line."""
    is_below = -0.5 * line.size <= line.box[1] - before.box[3] <= 0.6 * line.size
    return is_below or abs(line.box[1] - before.box[1]) <= 0.5 * line.size


def _is_named(text: str, title: str) -> bool:
    """Whether a heading is that of an entry, which may lack its number, or have it alone."""
    return _plain(text) == _plain(title) or _plain(text.lstrip("0123456789. ")) == _plain(title) != ""


def _plain(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter.isalnum())


def _ink_box(page: pymupdf.Page, box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    clip = pymupdf.Rect(box)
    pixels = page.get_pixmap(clip=clip, dpi=_DPI, colorspace=pymupdf.csGRAY)
    dark = np.frombuffer(pixels.samples, np.uint8).reshape(pixels.height, pixels.stride)[:, : pixels.width] < 160
    rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
    if not rows.size:
        return box
    scale = 72 / _DPI
    left, top = pixels.x * scale, pixels.y * scale
    return (
        left + float(columns[0]) * scale,
        top + float(rows[0]) * scale,
        left + float(columns[-1] + 1) * scale,
        top + float(rows[-1] + 1) * scale,
    )


def _thousandths(box: tuple[float, float, float, float], rect: pymupdf.Rect) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = (
        round(1000 * share) / 1000
        for share in (box[0] / rect.width, box[1] / rect.height, box[2] / rect.width, box[3] / rect.height)
    )
    return x0, y0, x1, y1


def levels(headings: Headings, outline: Sequence[OutlineEntry]) -> list[tuple[int, int]]:
    """For each heading that is in the outline, the level it gets, and that in the outline."""
    found = {}
    for part in assemble("a", headings.rows, outline).parts:
        if isinstance(part, Piece) and part.level is not None:
            found[part.places[0].page_index, part.places[0].block] = part.level
    return [(found[at], level) for at, level in headings.level_of.items()]


def _agreeing(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """How many of the levels are those of the outline; and how many are if all are off by the same number."""
    off = Counter(got - level for got, level in pairs)
    return off[0], max(off.values(), default=0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = benchmark_parser(__doc__)
    parser.add_argument("folder", type=Path, help="PDFs, those in its folders too")
    asked = parser.parse_args(arguments)
    record = Record("headings", asked)
    total: Counter[str] = Counter()
    pymupdf.TOOLS.mupdf_display_errors(False)
    for path in sorted(asked.folder.rglob("*.pdf")):
        row = _measure(path, asked)
        if row is not None:
            record.add({"file": path.name, **row})
            total.update(row)
    for name in ("without", "shifted", "of_ink", "given"):
        record.figure(f"{name}_share", total[name] / max(total["headings"], 1))
    record.add({"file": "all", **total})
    return 0


def _measure(path: Path, asked: argparse.Namespace) -> dict[str, int] | None:
    """How many headings of a PDF agree; None if it has no outline worth the name, or cannot be read."""
    try:
        with pymupdf.open(path) as document:
            if document.needs_pass or len(document.get_toc()) < _LEAST_ENTRIES:
                return None
            drawn, inked = find_headings(document, ink=False), find_headings(document, ink=True)
    except (RuntimeError, ValueError, pymupdf.FileDataError):
        return None
    if len(drawn.level_of) < _LEAST_ENTRIES:
        return None
    without, shifted = _agreeing(levels(drawn, ()))
    return {
        "headings": len(drawn.level_of),
        "others": sum(len(row.blocks) for row in drawn.rows) - len(drawn.level_of),
        "without": without,
        "shifted": shifted,
        "of_ink": _agreeing(levels(inked, ()))[1],
        "given": _agreeing(levels(drawn, drawn.outline))[0],
    }


if __name__ == "__main__":
    sys.exit(main())
