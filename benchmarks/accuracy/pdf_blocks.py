"""The rows that a reading of a PDF would give, with MuPDF's text blocks in place of a model's.

So what depends on blocks can be measured on hundreds of documents without a model. MuPDF's blocks are coarser than a
model's in some places (items without a gap between them are one block) and finer in others (the first line of a text
with a hanging indent is a block of its own), and it sees no figures that are drawn with lines. Texts stand in the order
of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

import pymupdf

from batchocr.data import Block, Box, PageResult, box_area, shared_area

_DPI: Final = 200.0
_MARGIN: Final = 0.1
"""How far from the upper or lower edge furniture stands at most, as a share of the page."""
_PAGE_NUMBER: Final = re.compile(
    r"\W*(?:(?:page|p\.|seite|стр\.|第)\s*)?(?:\d{1,4}|[ivxlc]{1,6})(?:\s*(?:/|of|von|de|из)\s*\d{1,4})?\s*[页頁]?\W*",
    re.IGNORECASE,
)
_HYPHENS: Final = ("-", "\u2010", "\u00ad")
_CJK: Final = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
_TURNED_MARK: Final = re.compile(r"([.،؛:!؟]+)(?=.*[\u0590-\u08ff])(.*[^.،؛:!؟])")
"""A line from right to left that begins with the mark at its end, as it does in many files."""
_BOLD: Final = re.compile(r"bold|medi|black|heavy|-bd", re.IGNORECASE)
_LARGER: Final = 1.12
"""Size of a heading, as a multiple of the body's; of a footnote the body's as a multiple of its own."""
_LONGEST_TITLE: Final = 160
"""Characters."""
_IMAGE: Final = (0.005, 0.5)
"""The least and the largest area of a figure, as a share of the page: others are ornaments, or a background."""
_INSIDE: Final = 0.6
"""The share of a text that has to lie in a figure or table to be a part of it."""

TypeOf: TypeAlias = Callable[[int, Block], str | None]
"""From the index of a page and a text block to the type that the block should have; None leaves the block out."""


@dataclass(frozen=True, slots=True)
class _Text:
    block: Block
    size: float
    """Of most of its letters, in points."""
    is_bold: bool
    """Whether all of its letters are."""
    mark_size: float
    """Of its first letter: that of a footnote is smaller than the rest."""


def pdf_rows(path: Path, type_of: TypeOf | None = None, *, tables: bool = True) -> list[PageResult]:
    """The rows of a PDF.

    type_of: has the last word on the type of each text. tables: whether MuPDF looks for tables, which takes nearly all
    of the time.
    """
    with pymupdf.open(path) as document:
        texts = [list(_texts(page)) for page in document]
        sizes = Counter(round(text.size, 1) for page in texts for text in page for _ in text.block.content or "")
        body = max(sizes, key=sizes.__getitem__, default=0.0)
        repeated = Counter(chain.from_iterable({_furniture_key(text.block) for text in page} for page in texts))
        rows = []
        for index, (page, found) in enumerate(zip(document, texts, strict=True)):
            blocks = [_typed(text.block, _guess(text, body, repeated)) for text in found]
            if type_of is not None:
                types = [type_of(index, block) for block in blocks]
                blocks = [_typed(block, type) for block, type in zip(blocks, types, strict=True) if type]
            blocks = _with_floats(blocks, [*_images(page), *(_tables(page) if tables else ())])
            width, height = (round(side * _DPI / 72) for side in (page.rect.width, page.rect.height))
            rows.append(
                PageResult(
                    path.name, index, "ok", page_count=len(texts), width=width, height=height, dpi=_DPI,
                    markdown="", blocks=tuple(blocks),
                )
            )  # fmt: skip
    return rows


def _texts(page: pymupdf.Page) -> Iterator[_Text]:
    flags = pymupdf.TEXTFLAGS_DICT & ~pymupdf.TEXT_PRESERVE_IMAGES
    for block in page.get_text("dict", flags=flags)["blocks"]:
        spans: list[dict[str, Any]] = [
            span for line in block["lines"] for span in line["spans"] if span["text"].strip()
        ]
        if spans:
            content = _joined("".join(span["text"] for span in line["spans"]) for line in block["lines"])
            sizes = Counter[float]()
            for span in spans:
                sizes[span["size"]] += len(span["text"])
            is_bold = all(_BOLD.search(span["font"]) or span["flags"] & pymupdf.TEXT_FONT_BOLD for span in spans)
            box = _box(page, block["bbox"])
            yield _Text(Block("text", box, 0, content), sizes.most_common(1)[0][0], is_bold, spans[0]["size"])


def _joined(lines: Iterator[str]) -> str:
    """A text of these lines: a hyphenated word is one, and Chinese and Japanese have no spaces."""
    text = ""
    for line in filter(None, map(str.strip, lines)):
        line = _TURNED_MARK.sub(r"\2\1", line) if _TURNED_MARK.fullmatch(line) else line
        is_hyphenated = text.endswith(_HYPHENS) and text[-2:-1].isalpha()
        if is_hyphenated and line[0].islower():
            text = text[:-1] + line
        elif not text or is_hyphenated or (_CJK.match(text[-1]) and _CJK.match(line[0])):
            text += line
        else:
            text += " " + line
    return text


def _guess(text: _Text, body: float, repeated: Counter[tuple[str, int]]) -> str:
    """The type of a text, from its place and its letters. body: the size of most letters of the document."""
    block, content = text.block, text.block.content or ""
    is_top, is_bottom = block.bbox[3] < _MARGIN, block.bbox[1] > 1 - _MARGIN
    if is_top or is_bottom:
        if _PAGE_NUMBER.fullmatch(content):
            return "page_number"
        if repeated[_furniture_key(block)] > 1:
            return "header" if is_top else "footer"
    if len(content) <= _LONGEST_TITLE and (text.size >= _LARGER * body or text.is_bold) and text.size >= 0.95 * body:
        return "title"
    has_mark = text.mark_size < text.size and not content[0].isalpha()
    if has_mark and _LARGER * text.size <= body and block.bbox[1] > 0.5:
        return "page_footnote"
    return "text"


def _furniture_key(block: Block) -> tuple[str, int]:
    """The same for what stands at the same height of several pages and differs in its numbers alone."""
    return re.sub(r"\d+", "0", block.content or ""), round(block.bbox[1] * 100)


def _typed(block: Block, type: str) -> Block:
    return Block(type, block.bbox, block.angle, block.content)


def _images(page: pymupdf.Page) -> Iterator[Block]:
    least, largest = _IMAGE
    for image in page.get_image_info():
        box = _box(page, image["bbox"])
        if least < box_area(box) < largest:
            yield Block("image", box, 0, None)


def _tables(page: pymupdf.Page) -> Iterator[Block]:
    for table in page.find_tables():
        rows = ("".join(f"<td>{cell or ''}</td>" for cell in row) for row in table.extract())
        html = "".join(f"<tr>{row}</tr>" for row in rows)
        yield Block("table", _box(page, table.bbox), 0, f"<table>{html}</table>")


def _with_floats(texts: Sequence[Block], floats: Sequence[Block]) -> list[Block]:
    """The texts with figures and tables in place of what lies in them; those without text come last."""
    blocks: list[Block] = []
    for text in texts:
        host = next((each for each in floats if _is_inside(text.bbox, each.bbox)), text)
        if host not in blocks:
            blocks.append(host)
    return [*blocks, *(each for each in floats if each not in blocks)]


def _is_inside(text: Box, place: Box) -> bool:
    return shared_area(text, place) >= _INSIDE * box_area(text)


def _box(page: pymupdf.Page, rect: Sequence[float]) -> Box:
    """In shares of the page as it is shown; MuPDF gives places on the page before it is turned."""
    x0, y0, x1, y1 = pymupdf.Rect(rect) * page.rotation_matrix
    width, height = page.rect.width, page.rect.height
    x0, x1, y0, y1 = (min(1.0, max(0.0, share)) for share in (x0 / width, x1 / width, y0 / height, y1 / height))
    return x0, y0, x1, y1
